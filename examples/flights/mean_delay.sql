-- Mean delay of all flights, over the last hour, every quarter of an hour. Without OVER the query advances by the floor
-- of its input: a window is final once no partition can still bring a flight into it.
SELECT
    System.Timestamp() AS window_end,
    AVG(delay) AS mean_delay,
    COUNT(*) AS flights
INTO mean_delay
FROM flights TIMESTAMP BY scheduled
GROUP BY HoppingWindow(Duration(hour, 1), Hop(minute, 15))
