SELECT o.ArrayIndex AS no, i.ArrayValue.name AS name, i.ArrayValue.count * 2 AS twice
INTO out
FROM a TIMESTAMP BY at
CROSS APPLY GetArrayElements(a.orders) AS o
CROSS APPLY GetArrayElements(o.ArrayValue.items) AS i
WHERE i.ArrayValue.count > 0
