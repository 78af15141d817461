SELECT who, System.Timestamp() AS s, COUNT(*) AS n
INTO out FROM a TIMESTAMP BY at GROUP BY who, SessionWindow(second, 5, 60) OVER (PARTITION BY who)
