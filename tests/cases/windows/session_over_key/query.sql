SELECT k, System.Timestamp() AS s, COUNT(*) AS n INTO out
FROM a TIMESTAMP BY at OVER k, PartitionId
GROUP BY k, SessionWindow(second, 5, 60)
