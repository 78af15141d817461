WITH counts AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10))
SELECT COUNT(*) AS groups, SUM(n) AS events, System.Timestamp() AS s INTO out FROM counts GROUP BY System.Timestamp()
