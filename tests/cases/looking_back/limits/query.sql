SELECT
    v,
    LAG(v) OVER (LIMIT DURATION(second, 5)) AS before,
    LAST(v) OVER (LIMIT DURATION(second, 5)) AS now,
    LAST(v) OVER (LIMIT DURATION(second, 5) WHEN v > 1) AS big,
    COUNT(*) OVER (LIMIT DURATION(second, 5)) AS n
INTO out
FROM a TIMESTAMP BY at
