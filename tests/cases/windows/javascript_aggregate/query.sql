-- The example of Stream Analytics' page: a time-weighted average; and seconds between the first and the last row of each window.
WITH value AS (SELECT NoiseLevelDB AS level, DurationSecond AS weight FROM input TIMESTAMP BY EntryTime)
SELECT System.Timestamp() AS ts, uda.TWA(value) AS twa, uda.span(level) AS seconds INTO output FROM value
GROUP BY HoppingWindow(minute, 10, 5)
