WITH max_power_during_last_3_mins AS (
    SELECT
        System.TimeStamp() AS windowTime,
        deviceId,
        max(value) AS maxPower
    FROM
        input TIMESTAMP BY t
    WHERE
        sensorName = 'power'
    GROUP BY
        deviceId,
        SlidingWindow(minute, 3)
)

SELECT
    t1.t AS eventTime,
    t1.deviceId,
    t1.value AS temp,
    'Short circuit heating elements' AS alertMessage,
    t2.maxPower AS maxPowerDuringLast3mins
INTO resultsr
FROM input t1 TIMESTAMP BY t
JOIN max_power_during_last_3_mins t2
    ON t1.deviceId = t2.deviceId
    AND t1.t = t2.windowTime
    AND DATEDIFF(minute, t1, t2) BETWEEN 0 AND 3
WHERE
    t1.sensorName = 'temp'
    AND t1.value <= 40
    AND t2.maxPower > 10
