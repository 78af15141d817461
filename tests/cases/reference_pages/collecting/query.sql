SELECT Collect() AS every INTO collected FROM i TIMESTAMP BY at GROUP BY Tumbling(second, 10)
SELECT Collect(b + x) AS sums INTO sums FROM i TIMESTAMP BY at GROUP BY Tumbling(second, 10)
SELECT k, CollectTop(2) OVER (ORDER BY a ASC, b DESC) AS top INTO tops FROM i TIMESTAMP BY at GROUP BY TumblingWindow(second, 5), k
SELECT k, CollectTop(2, b + x) OVER (ORDER BY a ASC, b DESC) AS top INTO top_sums FROM i TIMESTAMP BY at GROUP BY TumblingWindow(second, 5), k
SELECT TopOne() OVER (ORDER BY b DESC) AS topEvent INTO firsts FROM i TIMESTAMP BY at GROUP BY Tumbling(second, 10)
SELECT TopOne(b * x) OVER (ORDER BY b DESC) AS topEvent INTO products FROM i TIMESTAMP BY at GROUP BY Tumbling(second, 10)
