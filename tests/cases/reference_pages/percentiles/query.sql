SELECT PERCENTILE_CONT(0.95) OVER (ORDER BY available) AS between_two, PERCENTILE_DISC(0.95) OVER (ORDER BY available) AS one_of_them
INTO o FROM regions TIMESTAMP BY at GROUP BY SlidingWindow(hours, 1) HAVING COUNT(*) = 5
