SELECT x.v AS v, y.v AS before, System.Timestamp() AS s INTO out
FROM a TIMESTAMP BY at x LEFT JOIN shift(a, second, 5) TIMESTAMP BY at y ON DATEDIFF(second, x, y) = 0
