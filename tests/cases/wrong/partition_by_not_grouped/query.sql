SELECT v, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at PARTITION BY k GROUP BY v, TumblingWindow(second, 10)
