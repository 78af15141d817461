SELECT System.Timestamp() AS s, COUNT(*) AS n
INTO out FROM a TIMESTAMP BY at GROUP BY HoppingWindow(Duration(second, 10), Hop(second, 5), Offset(second, 1))
