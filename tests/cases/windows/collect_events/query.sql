SELECT COLLECT() AS events INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
