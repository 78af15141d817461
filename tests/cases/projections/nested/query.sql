SELECT sensor.id AS id, sensor.place.floor AS floor, sensor.place AS place, tags, sensor.missing AS missing
INTO out
FROM a TIMESTAMP BY at
