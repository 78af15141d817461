WITH SelectPreviousEvent AS
(
SELECT
    *,
    LAG([time]) OVER (LIMIT DURATION(hour, 24)) AS previous_time,
    LAG([weight]) OVER (LIMIT DURATION(hour, 24)) AS previous_weight
FROM input TIMESTAMP BY [time]
)

SELECT
    LAG(time) OVER (LIMIT DURATION(hour, 24) WHEN previous_weight < 20000) [Start_fault],
    previous_time [End_fault]
FROM SelectPreviousEvent
WHERE
    [weight] < 20000
    AND previous_weight > 20000
