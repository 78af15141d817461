WITH counts AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10))
SELECT p.name AS name, counts.n AS n INTO out FROM counts JOIN places p ON counts.k = p.k
