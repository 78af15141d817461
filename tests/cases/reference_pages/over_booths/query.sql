SELECT booth, COUNT(*) AS n, System.Timestamp() AS ends INTO o FROM i TIMESTAMP BY came OVER booth, PartitionId PARTITION BY PartitionId
GROUP BY TUMBLINGWINDOW(minute, 3), booth, PartitionId
