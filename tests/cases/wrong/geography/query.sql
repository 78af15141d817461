SELECT k INTO out FROM a TIMESTAMP BY at WHERE ST_WITHIN(CreatePoint(lat, lon), fence) = 1
