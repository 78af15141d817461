SELECT k, SUM(v) AS s INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
