SELECT System.Timestamp() AS at, v, CAST(b AS datetime) AS b INTO out FROM a TIMESTAMP BY at
