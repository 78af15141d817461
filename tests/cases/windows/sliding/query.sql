SELECT System.Timestamp() AS s, COUNT(*) AS n, SUM(v) AS sum_of INTO out FROM a TIMESTAMP BY at GROUP BY SlidingWindow(second, 10)
