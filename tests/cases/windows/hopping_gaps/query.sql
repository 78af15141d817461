SELECT System.Timestamp() AS window_end, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(second, 2, 5)
