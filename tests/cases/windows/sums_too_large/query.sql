SELECT k, SUM(v) AS s, AVG(v) AS mean INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
