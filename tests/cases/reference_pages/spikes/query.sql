WITH seven AS (SELECT EventEnqueuedUtcTime AS time, t FROM i TIMESTAMP BY at WHERE sensor = 7),
judged AS (SELECT time, CAST(t AS float) AS temp, AnomalyDetection_SpikeAndDip(CAST(t AS float), 95, 120, 'spikesanddips') OVER(LIMIT DURATION(second, 120)) AS scores FROM seven),
smooth AS (SELECT System.Timestamp() AS time, AVG(CAST(t AS float)) AS temp FROM i TIMESTAMP BY at GROUP BY TUMBLINGWINDOW(second, 1)),
smooth_judged AS (SELECT time, temp, AnomalyDetection_SpikeAndDip(temp, 95, 120, 'spikesanddips') OVER(LIMIT DURATION(second, 120)) AS scores FROM smooth),
of_each AS (
    SELECT sensor, System.Timestamp() AS time, CAST(t AS float) AS temp,
        AnomalyDetection_SpikeAndDip(CAST(t AS float), 95, 2, 'spikesanddips') OVER(PARTITION BY sensor LIMIT DURATION(second, 120)) AS scores
    FROM i TIMESTAMP BY at)
SELECT time, temp, CAST(GetRecordPropertyValue(scores, 'Score') AS float) AS score, CAST(GetRecordPropertyValue(scores, 'IsAnomaly') AS bigint) AS is_anomaly INTO enqueued FROM judged
SELECT time, temp, CAST(GetRecordPropertyValue(scores, 'Score') AS float) AS score, CAST(GetRecordPropertyValue(scores, 'IsAnomaly') AS bigint) AS is_anomaly INTO smoothed FROM smooth_judged WHERE temp = 20
SELECT CAST(sensor AS nvarchar(max)) AS sensor, time, temp, CAST(GetRecordPropertyValue(scores, 'Score') AS float) AS score, CAST(GetRecordPropertyValue(scores, 'IsAnomaly') AS bigint) AS is_anomaly INTO of_sensors FROM of_each
