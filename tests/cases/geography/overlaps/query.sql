SELECT ST_OVERLAPS(datacenterArea, stormArea) AS overlaps INTO out FROM a TIMESTAMP BY at
