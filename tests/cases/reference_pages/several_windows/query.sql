WITH hops AS (
    SELECT System.Window().Id, booth, COUNT(*) FROM i TIMESTAMP BY came
    GROUP BY booth, Windows(Window('H10', Hopping(minute, 10, 5)), Window('H20', Hopping(minute, 20, 5))))
SELECT booth, COUNT(*) INTO unnamed FROM i TIMESTAMP BY came GROUP BY booth, Windows(TumblingWindow(minute, 10), TumblingWindow(minute, 20))
SELECT System.Window().Id, booth, COUNT(*) INTO named FROM i TIMESTAMP BY came
GROUP BY booth, Windows(Window('1 min', TumblingWindow(minute, 1)), Window('2 min', HoppingWindow(minute, 2, 1)))
SELECT hops.* INTO chosen FROM hops JOIN wanted ON hops.booth = wanted.booth AND hops.Id = wanted.windowId
