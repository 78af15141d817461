SELECT "[my][Field]" AS v, a."[my][Field]" AS again, [[my]][Field]]] AS doubled, COUNT(*) AS n,
    MAX(GetRecordPropertyValue(r, "[my][Field]")) AS of_record
INTO out FROM a TIMESTAMP BY at GROUP BY "[my][Field]", TumblingWindow(second, 10)
