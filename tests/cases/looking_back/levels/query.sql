WITH judged AS (
    SELECT at, AnomalyDetection_ChangePoint(v, 50, 16) OVER (LIMIT DURATION(minute, 5)) AS judgement
    FROM a TIMESTAMP BY at
)
SELECT
    at, ROUND(CAST(GetRecordPropertyValue(judgement, 'Score') AS float), 6) AS score,
    CAST(GetRecordPropertyValue(judgement, 'IsAnomaly') AS bigint) AS is_anomaly
INTO out
FROM judged
WHERE CAST(GetRecordPropertyValue(judgement, 'Score') AS float) > 1
