SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at PARTITION BY k, v GROUP BY k, v, TumblingWindow(second, 5)
