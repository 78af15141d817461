SELECT k, STDEV(v) AS s, VAR(v) AS v, STDEVP(v) AS sp, VARP(v) AS vp INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
