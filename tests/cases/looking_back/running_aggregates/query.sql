SELECT
    v,
    AVG(v) OVER (LIMIT DURATION(second, 10)) AS mean,
    MIN(v) OVER (LIMIT DURATION(second, 10)) AS low,
    MAX(v) OVER (LIMIT DURATION(second, 10)) AS high,
    COUNT(v) OVER (LIMIT DURATION(second, 10) WHEN v > 2) AS big
INTO out
FROM a TIMESTAMP BY at
