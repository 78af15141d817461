SELECT System.Timestamp() AS s, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY SessionWindow(second, 5, 60)
