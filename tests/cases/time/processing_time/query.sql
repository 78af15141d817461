SELECT v, a.EventProcessedUtcTime AS processed, DATEDIFF(second, System.Timestamp(), EventProcessedUtcTime) AS delay
INTO out FROM a TIMESTAMP BY EventProcessedUtcTime
