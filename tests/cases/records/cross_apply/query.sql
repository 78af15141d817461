SELECT a.id AS id, part.ArrayIndex AS place, part.ArrayValue AS tag INTO out FROM a TIMESTAMP BY at
CROSS APPLY GetArrayElements(a.tags) AS part
