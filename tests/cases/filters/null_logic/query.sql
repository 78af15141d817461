SELECT
    id,
    CASE WHEN p = 1 AND q = 1 THEN 'yes' WHEN NOT (p = 1 AND q = 1) THEN 'no' ELSE 'unknown' END AS both,
    CASE WHEN p = 1 OR q = 1 THEN 'yes' WHEN NOT (p = 1 OR q = 1) THEN 'no' ELSE 'unknown' END AS either,
    CASE WHEN q IS NULL THEN 1 ELSE 0 END AS q_missing
INTO out
FROM a TIMESTAMP BY at
