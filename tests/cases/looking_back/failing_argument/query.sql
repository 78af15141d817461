WITH rows AS (SELECT k, x FROM a TIMESTAMP BY at)
SELECT k, LAG(CAST(x AS bigint)) OVER (LIMIT DURATION(minute, 1)) AS before INTO out FROM rows;
SELECT k, LAG(x) OVER (LIMIT DURATION(minute, 1)) AS before INTO texts FROM rows
