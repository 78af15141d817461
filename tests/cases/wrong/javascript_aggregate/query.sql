SELECT uda.TimeWeightedAverage(k) AS v INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(minute, 5)
