SELECT
    [user],
    feature,
    DATEDIFF(
        second,
        LAST(Time) OVER (PARTITION BY [user], feature LIMIT DURATION(hour, 1) WHEN Event = 'start'),
        Time) AS duration
FROM input TIMESTAMP BY Time
WHERE
    Event = 'end'
