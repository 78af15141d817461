SELECT i.id AS id, DATEDIFF(second, i.at, c.at) AS after INTO clicked
FROM impressions TIMESTAMP BY at i JOIN clicks TIMESTAMP BY at c ON i.id = c.id AND DATEDIFF(minute, i, c) BETWEEN 0 AND 60;
SELECT i.id AS id, System.Timestamp() AS since INTO unclicked
FROM impressions TIMESTAMP BY at i LEFT JOIN clicks TIMESTAMP BY at c ON i.id = c.id AND DATEDIFF(minute, i, c) BETWEEN 0 AND 60
WHERE c.id IS NULL
