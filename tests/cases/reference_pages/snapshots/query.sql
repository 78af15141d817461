WITH halves AS (SELECT topic, [user], COUNT(*) FROM tweets TIMESTAMP BY at GROUP BY topic, [user], TumblingWindow(minute, 30))
SELECT topic, COUNT(*) INTO instants FROM tweets TIMESTAMP BY at GROUP BY topic, System.Timestamp()
SELECT * INTO counts FROM halves
SELECT topic, users = COUNT(*), total = SUM(count) INTO topics FROM halves GROUP BY topic, System.Timestamp()
SELECT topic, users = COUNT(*), total = SUM(count) INTO batches FROM halves GROUP BY topic, System.Timestamp(), Tumbling(hour, 2)
SELECT topic, COUNT(*) INTO several FROM tweets TIMESTAMP BY at GROUP BY topic, Windows(TumblingWindow(hour, 1), TumblingWindow(hour, 2), System.Timestamp())
