SELECT a.v AS v, b.v AS w, System.Timestamp() AS s INTO out
FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON DATEDIFF(minute, a, b) = 0 AND b.v - a.v > 20
