SELECT
    Make,
    COUNT(*) AS [Count]
FROM
    Input TIMESTAMP BY Time
GROUP BY
    Make,
    TumblingWindow(second, 10)
