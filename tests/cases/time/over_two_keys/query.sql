SELECT city, line, System.Timestamp() AS window_end, COUNT(*) AS n
INTO out
FROM a TIMESTAMP BY at OVER city, line
GROUP BY line, city, TumblingWindow(second, 10)
