SELECT k, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS low, MAX(v) AS high
INTO out
FROM a TIMESTAMP BY at
GROUP BY k, TumblingWindow(second, 10)
