SELECT k, active, System.Timestamp() AS s INTO out FROM active(a, second, 5, k) TIMESTAMP BY at
