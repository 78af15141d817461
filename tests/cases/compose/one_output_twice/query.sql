SELECT k, 'high' AS kind, v INTO out FROM a TIMESTAMP BY at WHERE v > 1
SELECT COUNT(*) AS n, 'count' AS Kind INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 2)
SELECT v INTO other FROM a TIMESTAMP BY at WHERE v = 1
