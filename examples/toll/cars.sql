SELECT System.Timestamp() AS until, COUNT(*) AS cars
FROM toll TIMESTAMP BY event_time
GROUP BY TumblingWindow(minute, 10)
