SELECT System.Timestamp() AS ends, booth, AVG(toll), COUNT(*), SUM(toll), STDEV(toll), STDEVP(toll), VAR(toll), VARP(toll)
INTO booths FROM cars TIMESTAMP BY came GROUP BY booth, TumblingWindow(minute, 3)
SELECT booth, System.Timestamp() AS ends, MAX(toll) AS dearest, MIN(toll) AS cheapest
INTO extremes FROM cars TIMESTAMP BY came GROUP BY booth, TumblingWindow(hour, 1)
SELECT plate, toll, MAX(toll) OVER (PARTITION BY class LIMIT DURATION(hour, 1)) AS dearest, MIN(toll) OVER (PARTITION BY class LIMIT DURATION(hour, 1)) AS cheapest
INTO passages FROM cars TIMESTAMP BY came
