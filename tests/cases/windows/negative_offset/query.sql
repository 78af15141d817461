SELECT System.Timestamp() AS window_end, COUNT(*) AS n
INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(Duration(second, 10), Offset(millisecond, -1))
