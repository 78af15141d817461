WITH
    counts AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)),
    highs AS (SELECT k, MAX(v) AS high FROM b TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10))
SELECT counts.k AS k, n, high, System.Timestamp() AS since
INTO out
FROM counts LEFT JOIN highs ON counts.k = highs.k AND DATEDIFF(second, counts, highs) = 0
