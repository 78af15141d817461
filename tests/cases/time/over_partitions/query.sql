SELECT k, COUNT(*) AS n, MAX(v) AS high
INTO out
FROM a TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
