SELECT
    k,
    v,
    CollectTop(2, v) OVER (PARTITION BY k ORDER BY v DESC LIMIT DURATION(minute, 1) WHEN v > 5) AS top,
    TopOne() OVER (PARTITION BY k ORDER BY v LIMIT DURATION(minute, 1)).n AS least
INTO out
FROM a TIMESTAMP BY at
