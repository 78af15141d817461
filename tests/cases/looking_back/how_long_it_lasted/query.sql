WITH pairs AS (
    SELECT at, w, LAG(at) OVER (LIMIT DURATION(hour, 1)) AS last_at, LAG(w) OVER (LIMIT DURATION(hour, 1)) AS last_w FROM a TIMESTAMP BY at
)
SELECT LAG(at) OVER (LIMIT DURATION(hour, 1) WHEN last_w < 20) AS began, last_at AS ended
INTO faults FROM pairs WHERE w < 20 AND last_w >= 20
