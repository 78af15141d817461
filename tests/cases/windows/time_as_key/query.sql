SELECT System.Timestamp() AS s, COUNT(*) AS n INTO instants FROM a TIMESTAMP BY at GROUP BY System.Timestamp(), TumblingWindow(second, 10);
SELECT DATEADD(second, -10, System.Timestamp()) AS window_begin, MIN(System.Timestamp()) AS first, MAX(System.Timestamp()) AS last
INTO spans FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
