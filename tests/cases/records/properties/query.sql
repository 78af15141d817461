SELECT GetRecordProperties(r) AS members INTO whole FROM a TIMESTAMP BY at;
SELECT p.PropertyName AS name, SUM(p.PropertyValue) AS total INTO totals FROM a TIMESTAMP BY at
CROSS APPLY GetRecordProperties(a.r) AS p
GROUP BY p.PropertyName, TumblingWindow(second, 10)
