SELECT System.Timestamp() AS s, COUNT(*) AS n INTO alarm FROM a TIMESTAMP BY at GROUP BY SlidingWindow(second, 5) HAVING COUNT(*) >= 3
