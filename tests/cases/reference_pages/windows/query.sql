SELECT System.Timestamp() AS ends, booth, COUNT(*) AS n INTO tumbling FROM i TIMESTAMP BY came GROUP BY booth, TumblingWindow(Duration(hour, 1), Offset(millisecond, -1))
SELECT System.Timestamp() AS ends, booth, COUNT(*) AS n INTO hopping FROM i TIMESTAMP BY came GROUP BY booth, HoppingWindow(Duration(minute, 10), Hop(minute, 5), Offset(millisecond, -1))
SELECT DateAdd(minute, -5, System.Timestamp()) AS starts, System.Timestamp() AS ends, booth, COUNT(*) INTO sliding FROM i TIMESTAMP BY came GROUP BY booth, SlidingWindow(minute, 5) HAVING COUNT(*) > 3
SELECT 'reset' AS command INTO alert FROM machines TIMESTAMP BY made GROUP BY TumblingWindow(second, 15) HAVING Avg(machine.heat) > 25
