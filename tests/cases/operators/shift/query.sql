SELECT v, at, System.Timestamp() AS s INTO out FROM shift(a, second, 5) TIMESTAMP BY at AS later
