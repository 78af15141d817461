SELECT x.v AS earlier, y.v AS later INTO out
FROM a TIMESTAMP BY at x JOIN a TIMESTAMP BY at y ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN 1 AND 5
