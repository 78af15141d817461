WITH ReaderQuery AS (
    SELECT *
    FROM Input TIMESTAMP BY Time
)

SELECT * INTO ArchiveOutput FROM ReaderQuery

SELECT
    Make,
    System.TimeStamp() AS Time,
    COUNT(*) AS [Count]
INTO
    AlertOutput
FROM
    ReaderQuery
GROUP BY
    Make,
    TumblingWindow(second, 10)
HAVING
    [Count] >= 3
