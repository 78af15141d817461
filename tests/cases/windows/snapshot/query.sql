SELECT System.Timestamp() AS s, COUNT(*) AS n INTO by_name FROM a TIMESTAMP BY at GROUP BY SnapshotWindow();
SELECT k, SUM(v) AS total INTO by_time FROM a TIMESTAMP BY at GROUP BY k, System.Timestamp()
