CREATE TABLE input(booth nvarchar(max), came datetime, plates array, nested array)
SELECT e.booth, e.came, flat.ArrayValue AS plate INTO crossed FROM input AS e TIMESTAMP BY came CROSS APPLY GetArrayElements(e.plates) AS flat
SELECT e.booth, flat.ArrayValue AS plate, flat.ArrayIndex AS place INTO outer_rows FROM input AS e TIMESTAMP BY came OUTER APPLY GetArrayElements(e.plates) AS flat;
WITH outside AS (
    SELECT input.booth, flat.ArrayIndex AS i1, flat.ArrayValue AS plates FROM input TIMESTAMP BY came CROSS APPLY GetArrayElements(input.nested) AS flat)
SELECT outside.booth, outside.i1, inside.ArrayIndex AS i2, inside.ArrayValue AS plate INTO pairs FROM outside CROSS APPLY GetArrayElements(outside.plates) AS inside
