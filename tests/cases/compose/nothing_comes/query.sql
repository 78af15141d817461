SELECT v INTO filtered FROM a TIMESTAMP BY at WHERE v > 5;
SELECT COUNT(*) AS n INTO counted FROM b TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
