SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at PARTITION BY k GROUP BY k, SessionWindow(second, 5, 60)
