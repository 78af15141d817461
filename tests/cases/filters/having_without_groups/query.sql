SELECT v, v * 2 AS twice INTO out FROM a TIMESTAMP BY at WHERE v > 1 HAVING twice < 8
