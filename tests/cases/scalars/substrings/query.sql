SELECT SUBSTRING(t, n, 3) AS part, LEFT(t, n) AS head, RIGHT(t, n) AS tail INTO out FROM a TIMESTAMP BY at
