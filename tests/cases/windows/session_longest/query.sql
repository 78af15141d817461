SELECT System.Timestamp() AS s, COUNT(*) AS n, MIN(v) AS first, MAX(v) AS last INTO out FROM a TIMESTAMP BY at GROUP BY SessionWindow(second, 5, 10)
