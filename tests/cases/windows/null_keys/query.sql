SELECT k, COUNT(*) AS n INTO keys FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10);
SELECT LOWER(k) AS k, COUNT(*) AS n INTO small FROM a TIMESTAMP BY at GROUP BY LOWER(k), TumblingWindow(second, 10)
