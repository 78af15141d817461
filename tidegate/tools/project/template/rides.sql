-- Each car's positions and mean speed in every minute. A minute's row comes when it is final, and is never taken back.
SELECT car, System.Timestamp() AS minute_end, COUNT(*) AS fixes, AVG(speed) AS speed
INTO rides
FROM taxis TIMESTAMP BY at OVER car
GROUP BY car, TumblingWindow(minute, 1)
