SELECT k, MAX(v) AS high INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10) HAVING COUNT(*) > 1 AND MIN(v) < 5
