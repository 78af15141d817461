SELECT a.k AS k, b.v AS v INTO out
FROM a TIMESTAMP BY at
LEFT JOIN b TIMESTAMP BY at ON CAST(a.k AS bigint) = CAST(b.k AS bigint) AND DATEDIFF(second, a, b) BETWEEN 0 AND 5
