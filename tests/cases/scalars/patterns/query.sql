SELECT PATINDEX('%[0-9]%', t) AS digit, REGEXMATCH(t, '[0-9]+') AS number, REGEXMATCH(t, 'b[0-9]') AS letter INTO out FROM a TIMESTAMP BY at
