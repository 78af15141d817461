SELECT ST_DISTANCE(carPosition, warehouse) AS metres INTO out FROM a TIMESTAMP BY at
