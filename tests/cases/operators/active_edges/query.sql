SELECT k, active, System.Timestamp() AS s
INTO out
FROM active(a, second, 10, edge = ended, span = trip, k) TIMESTAMP BY at
