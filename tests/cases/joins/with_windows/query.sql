WITH counts AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10))
SELECT a.k AS k, a.v AS v, counts.n AS n
INTO out
FROM a TIMESTAMP BY at JOIN counts ON a.k = counts.k AND DATEDIFF(second, counts, a) BETWEEN 1 AND 10
