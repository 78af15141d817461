SELECT k, SUM(v - LAG(v) OVER (PARTITION BY k LIMIT DURATION(minute, 1))) AS grown, COUNT(*) AS n
INTO out FROM a TIMESTAMP BY at
WHERE v > 2
GROUP BY k, TumblingWindow(second, 10)
