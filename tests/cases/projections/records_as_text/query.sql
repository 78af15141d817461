WITH texts AS (SELECT CAST(v AS nvarchar(max)) AS t FROM a TIMESTAMP BY at)
SELECT CAST(v AS nvarchar(max)) AS t, LAG(CAST(v AS nvarchar(max))) OVER (LIMIT DURATION(minute, 1)) AS before
INTO out FROM a TIMESTAMP BY at;
SELECT MAX(t) AS largest, COLLECT(t) AS every INTO together FROM texts GROUP BY TumblingWindow(minute, 1);
SELECT t + '!' AS t, COUNT(*) AS n INTO counted FROM texts GROUP BY t, TumblingWindow(minute, 1)
