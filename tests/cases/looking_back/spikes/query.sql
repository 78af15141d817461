WITH judged AS (
    SELECT System.Timestamp() AS [time], AnomalyDetection_SpikeAndDip(CAST(temperature AS float), 95, 4, 'spikesanddips')
        OVER (LIMIT DURATION(second, 120)) AS judgement
    FROM a TIMESTAMP BY at
)
SELECT
    [time], CAST(GetRecordPropertyValue(judgement, 'Score') AS float) AS score,
    CAST(GetRecordPropertyValue(judgement, 'IsAnomaly') AS bigint) AS is_anomaly
INTO out
FROM judged
