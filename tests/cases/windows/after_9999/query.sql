SELECT k, COUNT(*) AS n INTO days FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(day, 1);
SELECT k, System.Timestamp() AS second_end, COUNT(*) AS n INTO seconds FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 1)
