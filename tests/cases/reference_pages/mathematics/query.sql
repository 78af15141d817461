SELECT ABS(i.x) AS "The ABS of the variable x", CEILING(i.x) AS "CEILING", FLOOR(i.x) AS "FLOOR", SIGN(i.x) AS "SIGN", SQUARE(i.x) AS "SQUARE",
    SQRT(ABS(i.x)) AS "SQRT", POWER(i.x, 3) AS "The 3rd POWER of the variable x", EXP(i.y) AS "EXP"
INTO o FROM i TIMESTAMP BY at
