SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(day, 8)
