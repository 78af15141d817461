CREATE TABLE a (k nvarchar(max), other nvarchar(max))
WITH s AS (SELECT k, other FROM a TIMESTAMP BY at)
SELECT k, "it's one" AS note INTO steps FROM s WHERE k = "x"

SELECT k INTO equal FROM a TIMESTAMP BY at WHERE k = "other"

SELECT v INTO several FROM a TIMESTAMP BY at WHERE k IN ('x', "y") OR k LIKE "z%" OR k BETWEEN "q" AND "r"

SELECT k, COUNT(*) AS n INTO groups FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(minute, 1) HAVING k <> "x"
