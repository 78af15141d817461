SELECT LOWER(make) AS make, COUNT(*) AS [Count], MAX(weight) AS weight, System.Timestamp() AS window_end
INTO alerts
FROM cars TIMESTAMP BY at
GROUP BY make, TumblingWindow(second, 10)
HAVING [count] >= 2 AND make <> 'b' AND SUM(weight) < 100 AND DATEPART(second, window_end) = 10
