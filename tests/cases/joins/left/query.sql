SELECT a.k AS k, b.v AS ended INTO out
FROM a TIMESTAMP BY at
LEFT JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5
