SELECT one.PropertyName, one.PropertyValue INTO members FROM input AS e TIMESTAMP BY at CROSS APPLY GetRecordProperties(e.readings) AS one
SELECT input.device, thresholds.sensor INTO alerts FROM input TIMESTAMP BY at JOIN thresholds ON input.device = thresholds.device
WHERE GetRecordPropertyValue(input.readings, thresholds.sensor) > thresholds.value
SELECT readings.place.room INTO rooms FROM input TIMESTAMP BY at
