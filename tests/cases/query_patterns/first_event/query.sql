SELECT
    License_plate,
    Make,
    Time
FROM
    Input TIMESTAMP BY Time
WHERE
    IsFirst(minute, 10) = 1
