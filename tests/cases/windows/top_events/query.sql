WITH tops AS (
    SELECT TopOne() OVER (ORDER BY v DESC, k) AS best, CollectTop(2) OVER (ORDER BY v) AS low
    FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
)
SELECT best.k AS k, GetArrayElement(low, 0).value.k AS lowest, low INTO out FROM tops
