SELECT k INTO out FROM a TIMESTAMP BY at
WHERE TumblingWindow(second, 10)
