SELECT a.k AS k, a.v AS started, b.v AS ended, System.Timestamp() AS s
INTO out
FROM a TIMESTAMP BY at
JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5
