SELECT device, System.Timestamp() AS window_end, COUNT(*) AS cars
INTO counts
FROM toll TIMESTAMP BY event_time
GROUP BY device, TumblingWindow(minute, 10)
HAVING COUNT(*) > 1
