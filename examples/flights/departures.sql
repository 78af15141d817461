-- Departures per airport and hour. OVER origin: each airport advances by its own events, so a quiet airport waits for
-- none of the others, and none of them waits for it.
SELECT
    origin,
    System.Timestamp() AS window_end,
    COUNT(*) AS departures
INTO departures
FROM flights TIMESTAMP BY scheduled OVER origin
GROUP BY origin, TumblingWindow(hour, 1)
