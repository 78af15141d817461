SELECT v, PATINDEX("%[0-9]%", k) AS digit INTO out FROM a TIMESTAMP BY at WHERE k LIKE "x%"
