SELECT ST_INTERSECTS(pavedRoad, dirtRoad) AS meets INTO out FROM a TIMESTAMP BY at
