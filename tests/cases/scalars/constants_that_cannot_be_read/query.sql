SELECT TRY_CAST('[1' AS array) AS list, TRY_CAST('{' AS record) AS member, TRY_CAST('x' AS bigint) AS number,
    ROUND(9223372036854775807, -1) AS beyond, ROUND(n, -1) AS tens,
    CASE WHEN n > 20 THEN DATEADD(day, 1, 'hello') END AS later
INTO out FROM a TIMESTAMP BY at
