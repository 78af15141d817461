SELECT System.Window().Id AS id, System.Timestamp() AS s, COUNT(*) AS n
INTO out FROM a TIMESTAMP BY at
GROUP BY Windows(
    Window('even', TumblingWindow(second, 10)),
    Window('odd', TumblingWindow(Duration(second, 10), Offset(second, 5))))
