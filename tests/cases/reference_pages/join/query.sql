SELECT e.booth, e.plate, x.plate AS other, DATEDIFF(minute, e.at, x.at) AS minutes INTO by_time FROM ins e TIMESTAMP BY at JOIN outs x TIMESTAMP BY at ON DATEDIFF(minute, e, x) BETWEEN 0 AND 15
SELECT e.plate, x.at INTO by_keys FROM ins e TIMESTAMP BY at JOIN outs x TIMESTAMP BY at ON e.booth = x.booth AND e.plate = x.plate AND DATEDIFF(minute, e, x) BETWEEN 0 AND 15
SELECT e.plate, x.at INTO of_partitions FROM ins e TIMESTAMP BY at PARTITION BY booth JOIN outs x TIMESTAMP BY at PARTITION BY booth ON e.booth = x.booth AND e.plate = x.plate AND DATEDIFF(minute, e, x) BETWEEN 0 AND 15
SELECT e.booth, e.at, x.at AS left_at, e.plate, System.Timestamp() AS known INTO missing FROM ins e TIMESTAMP BY at LEFT OUTER JOIN outs x TIMESTAMP BY at
ON e.booth = x.booth AND e.plate = x.plate AND DATEDIFF(minute, e, x) BETWEEN 0 AND 15 WHERE x.booth IS NULL
SELECT s.id, r.code INTO errors FROM starts s TIMESTAMP BY at JOIN ends d TIMESTAMP BY at ON DATEDIFF(second, s, d) BETWEEN 0 AND 5 AND s.id = d.id
JOIN errs r TIMESTAMP BY at ON DATEDIFF(second, s, r) BETWEEN 0 AND 5 AND DATEDIFF(second, d, r) < 0 AND r.tid = s.id
