SELECT a.id AS id, e.ArrayIndex AS i, e.ArrayValue AS v INTO everything FROM a TIMESTAMP BY at OUTER APPLY GetArrayElements(a.l) AS e;
SELECT a.id AS id, COUNT(*) AS n INTO counts FROM a TIMESTAMP BY at CROSS APPLY GetArrayElements(a.l) AS e GROUP BY a.id, TumblingWindow(second, 10)
