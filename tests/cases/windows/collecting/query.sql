SELECT COLLECT(v) AS all_of_them, TopOne(k) OVER (ORDER BY v DESC) AS best, CollectTop(2, v) OVER (ORDER BY v DESC) AS two
INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
