WITH smooth AS (SELECT System.Timestamp() AS time, AVG(CAST(t AS float)) AS temp FROM i TIMESTAMP BY at GROUP BY TUMBLINGWINDOW(second, 1)),
smooth_judged AS (SELECT time, temp, AnomalyDetection_ChangePoint(temp, 80, 1200) OVER(LIMIT DURATION(minute, 20)) AS scores FROM smooth),
judged AS (
    SELECT sensor, EventEnqueuedUtcTime AS time, AnomalyDetection_ChangePoint(CAST(t AS float), 80, 1200) OVER(LIMIT DURATION(minute, 20)) AS scores,
        AnomalyDetection_ChangePoint(t, 75, 72) OVER (PARTITION BY sensor LIMIT DURATION(hour, 6)) AS own
    FROM i TIMESTAMP BY at)
SELECT time, CAST(GetRecordPropertyValue(scores, 'Score') AS float) AS score, CAST(GetRecordPropertyValue(scores, 'IsAnomaly') AS bigint) AS is_anomaly
INTO smoothed FROM smooth_judged
SELECT CAST(sensor AS nvarchar(max)) AS sensor, time, CAST(GetRecordPropertyValue(scores, 'Score') AS float) AS score, own INTO enqueued FROM judged
