SELECT EventProcessedUtcTime AS processed, DATEDIFF(second, at, a.EventProcessedUtcTime) AS delay INTO out FROM a TIMESTAMP BY at
