SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, -10)
