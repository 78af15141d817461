SELECT v, System.Timestamp() AS s INTO out FROM a x TIMESTAMP BY x.EventEnqueuedUtcTime
