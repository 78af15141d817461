SELECT state, System.Timestamp() AS since INTO changes FROM a TIMESTAMP BY at
WHERE LAG(state) OVER (LIMIT DURATION(minute, 1)) <> state
