SELECT v, PartitionId AS p, System.Timestamp() AS s INTO out FROM a TIMESTAMP BY at
