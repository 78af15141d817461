SELECT AVG(v) AS mean, VARP(v) AS variance, STDEVP(v) AS deviation, VAR(v) AS of_a_sample INTO out
FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
