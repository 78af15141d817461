SELECT TopOne() AS best INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
