SELECT v / 10 AS tens, COUNT(*) AS n INTO tens FROM a TIMESTAMP BY at GROUP BY v / 10, TumblingWindow(second, 10);
SELECT CASE WHEN v < 15 THEN 'low' ELSE 'high' END AS class, SUM(v) AS s INTO classes
FROM a TIMESTAMP BY at GROUP BY CASE WHEN v < 15 THEN 'low' ELSE 'high' END, TumblingWindow(second, 10)
