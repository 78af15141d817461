SELECT v, EventProcessedUtcTime INTO out FROM a TIMESTAMP BY at
