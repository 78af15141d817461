SELECT System.Timestamp() AS window_end, COUNT(*) AS n, SUM(v) AS s INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(second, 10, 5)
