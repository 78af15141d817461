SELECT 'event' AS what, v INTO out FROM a TIMESTAMP BY at
UNION
SELECT 'sum', SUM(v) FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
