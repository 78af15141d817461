WITH counted AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 5))
SELECT c.k AS k, System.Timestamp(c) AS counted, MIN(System.Timestamp(b)) AS earliest, MAX(DATEDIFF(second, c, b)) AS latest
INTO out
FROM counted c JOIN b TIMESTAMP BY at ON c.k = b.k AND DATEDIFF(second, c, b) BETWEEN 0 AND 5
GROUP BY c.k, System.Timestamp(c), TumblingWindow(second, 10)
