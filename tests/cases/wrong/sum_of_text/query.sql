CREATE TABLE a (k nvarchar(max));
SELECT SUM(k) AS s INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
