SELECT
    CONCAT_WS('-', 'a', missing, 'b') AS joined, STUFF(t, 2, 3, 'XY') AS stuffed, REVERSE(t) AS reversed, REPLICATE('ab', 3) AS repeated,
    '[' + SPACE(2) + ']' AS spaces, TRANSLATE('2*[3+4]', '[]', '()') AS translated, NCHAR(8364) AS euro, UNICODE('€') AS code,
    LEN('ab  ') AS length, SUBSTRING(t, 0, 2) AS head, CHARINDEX('b', 'abcb', 3) AS place, LOWER('ÄB') AS low
INTO out FROM a TIMESTAMP BY at
