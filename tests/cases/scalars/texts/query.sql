SELECT
    LEN(t) AS length, LTRIM(t) AS l, RTRIM(t) AS r, UPPER(TRIM(t)) AS up, LOWER(TRIM(t)) AS low,
    LEFT(TRIM(t), 4) AS head, RIGHT(TRIM(t), 4) AS tail, SUBSTRING(TRIM(t), 6, 4) AS middle, REPLACE(TRIM(t), 'e', 'E') AS swapped,
    CONCAT(TRIM(t), missing, '!') AS joined, TRIM(t) + missing AS none, CHARINDEX('gate', t) AS place
INTO out
FROM a TIMESTAMP BY at
