WITH wa AS (SELECT booth, came AS entered, state FROM i TIMESTAMP BY came WHERE state = "WA"),
shards AS (SELECT * FROM i TIMESTAMP BY came PARTITION BY booth INTO 10),
normal AS (SELECT * FROM i TIMESTAMP BY came WHERE weight < 100 AND weight > 0),
means AS (SELECT booth, AVG(weight) AS mean FROM normal GROUP BY booth, TumblingWindow(minute, 1)),
bad AS (SELECT * FROM means WHERE mean < 10)
SELECT * INTO archive FROM wa;
SELECT DateAdd(minute, -3, System.Timestamp()) AS starts, System.Timestamp() AS ends, COUNT(*) INTO counts FROM wa GROUP BY TumblingWindow(minute, 3)
SELECT booth INTO sharded FROM shards PARTITION BY booth
SELECT * INTO alerts FROM bad
SELECT booth, plate INTO chosen FROM i TIMESTAMP BY came WHERE (CAST(booth AS bigint) BETWEEN 1 AND 2) AND plate LIKE '%AC%'
SELECT booth, System.Timestamp() AS ends, COUNT(*) INTO busy FROM i TIMESTAMP BY came GROUP BY TumblingWindow(minute, 3), booth HAVING COUNT(*) > 1
SELECT booth, came AS time, plate INTO both FROM i TIMESTAMP BY came UNION SELECT booth, gone AS time, plate FROM j TIMESTAMP BY gone
