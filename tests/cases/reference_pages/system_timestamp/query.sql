SELECT a - b / 4 AS projected, System.Timestamp() t INTO projections FROM i TIMESTAMP BY at
SELECT *, System.Timestamp() t INTO filtered FROM i TIMESTAMP BY at WHERE a > b
SELECT [user], AVG(a), SUM(b), System.Timestamp() t INTO minutes FROM i TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1), [user]
SELECT i.a, System.Timestamp() t INTO pairs FROM i TIMESTAMP BY at JOIN j TIMESTAMP BY at ON DATEDIFF(minute, i, j) BETWEEN 0 AND 10
SELECT i.a, j.c, System.Timestamp() t INTO lonely FROM i TIMESTAMP BY at LEFT JOIN j TIMESTAMP BY at ON DATEDIFF(minute, i, j) BETWEEN -2 AND 10
