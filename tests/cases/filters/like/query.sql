SELECT
    city,
    CASE WHEN city LIKE 'A%' THEN 1 ELSE 0 END AS starts,
    CASE WHEN city LIKE '_oston' THEN 1 ELSE 0 END AS one_before,
    CASE WHEN city LIKE '[A-B]%n' THEN 1 ELSE 0 END AS of_set,
    CASE WHEN city LIKE '[^A]%' THEN 1 ELSE 0 END AS not_of_set,
    CASE WHEN city LIKE '100[%]' THEN 1 ELSE 0 END AS percent
INTO out
FROM a TIMESTAMP BY at
