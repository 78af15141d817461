SELECT p.PropertyName AS name, p.PropertyValue AS value, GetRecordPropertyValue(i, p.PropertyName) AS again INTO members
FROM a AS i TIMESTAMP BY at CROSS APPLY GetRecordProperties(i) AS p WHERE p.PropertyName <> 'at';
WITH s AS (SELECT x AS left_x, i AS inner_i FROM a AS i TIMESTAMP BY at)
SELECT GetRecordPropertyValue(s, 'left_x') AS x, GetRecordProperties(s) AS columns INTO steps FROM s;
SELECT GetRecordPropertyValue(l, 'x') AS x, GetRecordPropertyValue(r, 'y') AS y INTO pairs
FROM a l TIMESTAMP BY at JOIN a r TIMESTAMP BY at ON DATEDIFF(second, l, r) BETWEEN 1 AND 1
