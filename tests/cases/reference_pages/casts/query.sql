CREATE TABLE declared (came datetime, booth bigint, toll float);
SELECT booth, make INTO cast FROM i TIMESTAMP BY came WHERE CAST(booth AS bigint) > 2
SELECT booth INTO tried FROM i TIMESTAMP BY came WHERE TRY_CAST(entered AS datetime) IS NOT NULL
SELECT booth INTO types FROM declared TIMESTAMP BY came WHERE GetType(came) = 'datetime' AND GetType(toll) = 'float'
SELECT DATEADD(hour, -1, System.Timestamp()) AS start, System.Timestamp AS ends, booth, SUM(toll) AS total INTO totals
FROM declared TIMESTAMP BY came GROUP BY booth, Tumbling(hour, 1)
