WITH
    red AS (SELECT * FROM a TIMESTAMP BY at WHERE colour = 'red'),
    busy AS (SELECT k, COUNT(*) AS n, System.Timestamp() AS at FROM red GROUP BY k, TumblingWindow(second, 10))
SELECT k, n * 2 AS twice, at INTO out FROM busy WHERE n > 1
