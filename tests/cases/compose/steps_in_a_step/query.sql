WITH high AS (WITH b AS (SELECT k, v FROM a TIMESTAMP BY at WHERE v > 1) SELECT k, v * 2 AS twice FROM b),
     low AS (WITH b AS (SELECT k FROM a TIMESTAMP BY at WHERE v = 1) SELECT k FROM b)
SELECT k, twice INTO out FROM high;
SELECT k INTO lows FROM low
