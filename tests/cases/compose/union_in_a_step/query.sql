WITH both AS (SELECT k, v FROM a TIMESTAMP BY at UNION SELECT k, w FROM b TIMESTAMP BY at)
SELECT k, SUM(v) AS total, COUNT(*) AS n INTO out FROM both GROUP BY k, TumblingWindow(second, 10)
