SELECT v / 10 AS tens, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at
GROUP BY tens, TumblingWindow(second, 10)
