SELECT v, System.Timestamp() AS s INTO out FROM a TIMESTAMP BY meta.time
