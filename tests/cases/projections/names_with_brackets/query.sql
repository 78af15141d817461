SELECT "[my][Field]" AS v, a."[my][Field]" AS again, [[my]][Field]]] AS doubled, COUNT(*) AS n
INTO out FROM a TIMESTAMP BY at GROUP BY "[my][Field]", TumblingWindow(second, 10)
