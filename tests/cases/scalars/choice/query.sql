SELECT COALESCE(a, b, 9) AS first, ISNULL(a, 0) AS or_zero, NULLIF(b, 2) AS but_two, IIF(b > 1, 'big', 'small') AS size
INTO out
FROM a TIMESTAMP BY at
