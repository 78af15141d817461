SELECT TOP 3 k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
