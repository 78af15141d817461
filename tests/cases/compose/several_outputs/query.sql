WITH counts AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10))
SELECT k INTO once FROM counts WHERE n = 1;
SELECT k, n INTO more FROM counts WHERE n > 1;
SELECT v INTO single FROM a TIMESTAMP BY at WHERE v = 2
