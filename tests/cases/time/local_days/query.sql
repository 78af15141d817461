SELECT SUBSTRING(DATEADD(day, -1, System.Timestamp() AT TIME ZONE 'Europe/Berlin'), 1, 10) AS [day], System.Timestamp() AS day_end, SUM(v) AS v
INTO days
FROM a TIMESTAMP BY at
GROUP BY TumblingWindow(Duration(day, 1), TimeZone('Europe/Berlin'))
