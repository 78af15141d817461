WITH pairs AS (
    SELECT a.k AS k, b.v - a.v AS d
    FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 3
)
SELECT k, COUNT(*) AS n, SUM(d) AS total, System.Timestamp() AS s INTO out FROM pairs GROUP BY k, TumblingWindow(second, 10)
