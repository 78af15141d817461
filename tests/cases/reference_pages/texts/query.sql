SELECT CHARINDEX('us', t) AS place, CONCAT('Make: ', t, ', Model: ', u) AS concat, CONCAT_WS(', ', t, missing, u, 'WA', missing) AS concat_ws, CONCAT_WS(', ', missing, missing) AS nothing,
    LEFT(t, 2) AS l, RIGHT(t, 2) AS r, SUBSTRING(t, 2, 4) AS part, STUFF(t, 2, 3, 'ijklmn') AS stuffed, REVERSE(t) AS reversed,
    LEN(CONCAT(t, '  ')) AS n, LOWER('AbC') AS low, UPPER('AbC') AS up,
    LTRIM('      Left test') AS lt, RTRIM('Right test    ') AS rt, TRIM('      a test    ') AS trimmed, TRIM(odd) AS of_all_white_space,
    NCHAR(33590) AS tea, NCHAR(UNICODE('茶')) AS again, UNICODE('茶') AS code,
    PATINDEX('%100%', plate) AS p, REGEXMATCH(plate, '[0-9][0-9][0-9]') AS m, REGEXMATCH(plate, missing) AS none,
    RTRIM('LastName  ') + ',' + SPACE(1) + LTRIM('    FirstName') AS name,
    TRANSLATE('2*[3+4]/{7-2}', '[]{}', '()()') AS brackets, TRANSLATE('[137.4,72.3]', '[,]', '( )') AS xy, TRANSLATE('(137.4 72.3)', '( )', '[,]') AS back
INTO o FROM i TIMESTAMP BY at
