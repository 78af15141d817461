SELECT active, System.Timestamp() AS s
INTO out
FROM active(a, second, 60, ends = until) TIMESTAMP BY at
