SELECT MIN(name) AS first_name, MAX(name) AS last_name, MIN(CAST(t AS datetime)) AS first_time, MAX(CAST(t AS datetime)) AS last_time
INTO out
FROM a TIMESTAMP BY at
GROUP BY TumblingWindow(minute, 1)
