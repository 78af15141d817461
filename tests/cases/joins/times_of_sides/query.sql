SELECT
    a.k AS k, System.Timestamp() AS t, System.Timestamp(a) AS ta, b.System.Timestamp() AS tb,
    DATEDIFF(second, a, b) AS apart, DATEADD(second, 1, b) AS later
INTO out
FROM a TIMESTAMP BY at
LEFT JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, System.Timestamp(a), System.Timestamp(b)) BETWEEN 0 AND 5
