-- Departures per day over all airports, from the results of departures.sql: stages chain. The event time of a result is
-- its System.Timestamp, the end of its window.
SELECT
    System.Timestamp() AS day_end,
    SUM(departures) AS departures,
    COUNT(*) AS airport_hours
INTO daily
FROM departures
GROUP BY TumblingWindow(day, 1)
