SELECT GetType(v) AS kind INTO out FROM a TIMESTAMP BY at;
SELECT GetType(System.Timestamp()) AS kind INTO times FROM a TIMESTAMP BY at WHERE v IS NULL
