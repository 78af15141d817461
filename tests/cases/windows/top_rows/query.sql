WITH busiest AS (
    SELECT TOP 2 k, COUNT(*) AS events, MAX(at) AS newest, AVG(v) AS mean, SUM(w), System.Timestamp() AS ended
    FROM a TIMESTAMP BY at
    GROUP BY k, TumblingWindow(second, 10)
    HAVING COUNT(*) < 4
    ORDER BY events DESC, k
)
SELECT * INTO out FROM busiest
