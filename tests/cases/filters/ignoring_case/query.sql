SET CASE_INSENSITIVE ON
SELECT
    k,
    CASE WHEN k = 'RED' THEN 1 ELSE 0 END AS same,
    CASE WHEN k IN ('BLUE', 'x') THEN 1 ELSE 0 END AS listed,
    CASE WHEN k LIKE 'rEd%' THEN 1 ELSE 0 END AS alike,
    CASE k WHEN 'rED' THEN 1 ELSE 0 END AS chosen,
    CHARINDEX('e', k) AS place
INTO rows FROM a TIMESTAMP BY at;
SELECT k, COUNT(*) AS n INTO groups FROM a TIMESTAMP BY at WHERE k > 'C' GROUP BY k, TumblingWindow(second, 10)
