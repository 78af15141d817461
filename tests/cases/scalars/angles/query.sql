SELECT
    SIN(z) AS sin_of, COS(z) AS cos_of, TAN(z) AS tan_of, ASIN(z) AS asin_of, ACOS(o) AS acos_of, ATAN(z) AS atan_of, ATN2(z, o) AS atn2_of,
    PI() AS pi_is, DEGREES(PI()) AS degrees_of, RADIANS(o * 180) AS radians_of, ACOS(o + 1) AS none
INTO out FROM a TIMESTAMP BY at
