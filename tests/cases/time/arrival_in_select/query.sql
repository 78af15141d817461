SELECT v, DATEDIFF(second, at, EventEnqueuedUtcTime) AS delay, EventEnqueuedUtcTime AS arrived INTO out FROM a TIMESTAMP BY at
