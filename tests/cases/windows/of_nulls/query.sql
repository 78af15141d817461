SELECT k, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS mean, MIN(v) AS low, COUNT(DISTINCT v) AS d, COLLECT(v) AS l
INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
