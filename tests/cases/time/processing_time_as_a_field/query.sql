CREATE TABLE a (EventProcessedUtcTime datetime)
SELECT EventProcessedUtcTime AS processed INTO out FROM a TIMESTAMP BY at
