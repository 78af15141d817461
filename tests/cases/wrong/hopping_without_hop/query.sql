SELECT COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(second, 10)
