SELECT
    CASE WHEN delay <= 0 THEN 'on time' WHEN delay < 60 THEN 'late' ELSE 'very late' END AS class,
    CASE WHEN delay > 60 THEN delay END AS long
INTO out
FROM a TIMESTAMP BY at
