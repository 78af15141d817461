SELECT System.Timestamp(), plate INTO epochs FROM e TIMESTAMP BY DATEADD(millisecond, epochtime, '1970-01-01T00:00:00Z')
SELECT System.Timestamp() AS t, kind INTO kinds FROM k TIMESTAMP BY (CASE kind WHEN 'A' THEN timeA WHEN 'B' THEN timeB ELSE NULL END)
