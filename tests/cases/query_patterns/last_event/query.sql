WITH LastInWindow AS
(
    SELECT
        MAX(Time) AS LastEventTime
    FROM
        Input TIMESTAMP BY Time
    GROUP BY
        TumblingWindow(minute, 10)
)

SELECT
    Input.License_plate,
    Input.Make,
    Input.Time
FROM
    Input TIMESTAMP BY Time
    INNER JOIN LastInWindow
    ON DATEDIFF(minute, Input, LastInWindow) BETWEEN 0 AND 10
    AND Input.Time = LastInWindow.LastEventTime
