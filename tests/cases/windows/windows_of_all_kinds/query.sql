SELECT System.Window().Id AS id, System.Timestamp() AS s, COUNT(*) AS n
INTO out
FROM a TIMESTAMP BY at
GROUP BY Windows(
    Window('tumbling', TumblingWindow(second, 10)),
    Window('hopping', HoppingWindow(second, 10, 5)),
    Window('sliding', SlidingWindow(second, 10)),
    Window('session', SessionWindow(second, 2, 10)),
    Window('snapshot', SnapshotWindow()))
