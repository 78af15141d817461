WITH spread AS (SELECT * FROM a PARTITION BY k INTO 10 TIMESTAMP BY at),
counts AS (
    SELECT k, PartitionId, COUNT(*) AS n
    FROM spread PARTITION BY k
    GROUP BY k, PartitionId, TumblingWindow(second, 10)
)
SELECT k, n INTO counted FROM counts PARTITION BY PartitionId;
SELECT a.v AS first, b.v AS then, LAG(b.v) OVER (PARTITION BY a.k LIMIT DURATION(minute, 1)) AS previous
INTO pairs
FROM a TIMESTAMP BY at PARTITION BY k
JOIN b TIMESTAMP BY at PARTITION BY k INTO 3 ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5
