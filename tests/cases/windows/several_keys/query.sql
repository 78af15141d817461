SELECT k, v % 100 AS rest, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY k, v % 100, TumblingWindow(second, 10)
