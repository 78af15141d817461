SELECT System.Timestamp() AS window_end, COUNT(*) AS n INTO out FROM toll TIMESTAMP BY event_time GROUP BY TumblingWindow(minute, 10)
