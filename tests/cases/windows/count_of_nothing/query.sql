SELECT COUNT() AS n, COUNT(v) AS known INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
