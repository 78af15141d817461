WITH late AS (SELECT k FROM every),
    every AS (SELECT k FROM a TIMESTAMP BY at)
SELECT k INTO out FROM late
