SELECT i.DeviceId, i.SensorReadings.Temperature, i.SensorReadings.CustomSensor AS every, GetArrayElement(i.SensorReadings.CustomSensor, 0) AS first,
    GetArrayElement(i.SensorReadings.CustomSensor, 1) AS second, GetArrayLength(SensorReadings.CustomSensor) AS n
INTO places FROM input i TIMESTAMP BY at
SELECT i.DeviceId, one.ArrayIndex, one.ArrayValue INTO rows FROM input AS i TIMESTAMP BY at CROSS APPLY GetArrayElements(i.SensorReadings.CustomSensor) AS one
SELECT i.DeviceId, SUM(one.ArrayValue) AS total INTO totals FROM input AS i TIMESTAMP BY at
CROSS APPLY GetArrayElements(i.SensorReadings.CustomSensor) AS one GROUP BY i.DeviceId, TumblingWindow(minute, 1)
