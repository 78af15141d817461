SELECT COUNT(*) AS n INTO out
FROM a TIMESTAMP BY at OVER k
GROUP BY v, TumblingWindow(second, 10)
