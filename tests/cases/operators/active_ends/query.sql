SELECT k, active, System.Timestamp() AS s INTO out FROM active(a, second, 10, ends = until, k) TIMESTAMP BY at
