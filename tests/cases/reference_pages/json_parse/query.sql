WITH parsed AS (SELECT JSON_PARSE(change.old) AS old, JSON_PARSE(change.[current]) AS new FROM i TIMESTAMP BY at)
SELECT old INTO whole FROM parsed
SELECT new.id, new.product INTO members FROM parsed
