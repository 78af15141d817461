SELECT System.Timestamp() AS s, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY SlidingWindow(second, 10)
