SELECT id, ok, CAST(ok AS bigint) AS number, CAST(ok AS nvarchar(max)) AS text
INTO known FROM a TIMESTAMP BY at WHERE ok IS NOT NULL;
SELECT id INTO refused FROM a TIMESTAMP BY at WHERE NOT (ok = 1)
