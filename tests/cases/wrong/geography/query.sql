SELECT k INTO out FROM a TIMESTAMP BY at WHERE ST_WITHIN(lat, lon, fence) = 1
