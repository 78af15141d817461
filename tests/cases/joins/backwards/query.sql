SELECT a.v AS v, b.v AS w, System.Timestamp() AS s INTO out
FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON DATEDIFF(second, a, b) BETWEEN -5 AND 0
