WITH short AS (
    SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
)
SELECT System.Timestamp() AS window_end, SUM(n) AS s, MAX(n) AS m, COUNT(*) AS c INTO out FROM short GROUP BY TumblingWindow(second, 30)
