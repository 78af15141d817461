SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
ORDER BY n DESC
