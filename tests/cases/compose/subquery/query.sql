SELECT s.k AS k, s.n AS n, m.v AS v INTO out
FROM (
    SELECT k, COUNT(*) AS n FROM (SELECT * FROM a TIMESTAMP BY at WHERE v > 1) GROUP BY k, TumblingWindow(second, 10)
) AS s
JOIN (SELECT k, v FROM a TIMESTAMP BY at UNION SELECT k, v FROM b TIMESTAMP BY at) m
ON s.k = m.k AND DATEDIFF(second, s, m) BETWEEN 0 AND 5
