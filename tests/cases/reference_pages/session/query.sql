CREATE TABLE clicks(time DATETIME, user_id BIGINT, url NVARCHAR(MAX))
SELECT user_id, MIN(time) AS window_start, System.Timestamp() AS window_end, DATEDIFF(s, MIN(time), System.Timestamp()) AS seconds
INTO o FROM clicks TIMESTAMP BY time GROUP BY user_id, SessionWindow(minute, 2, 60) OVER (PARTITION BY user_id)
