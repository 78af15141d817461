SELECT k, System.Timestamp() AS window_end, COUNT(*) AS n
INTO out
FROM a TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
