SELECT k, active, System.Timestamp() AS s
INTO out
FROM active(a, second, 60, edge = until, span = at, k) TIMESTAMP BY at OVER k
