SELECT
    ABS(i) AS abs_whole, ABS(n) AS abs_float, CEILING(n) AS up, FLOOR(n) AS down, SIGN(i) AS sign_of, ROUND(n, 0) AS rounded,
    SQUARE(m) AS squared, SQRT(m) AS root, SQRT(n) AS no_root, POWER(z + 2, m) AS powered,
    EXP(z) AS e0, LOG(z + 1) AS ln1, LOG(z) AS no_log, LOG10(h) AS lg
INTO out
FROM a TIMESTAMP BY at
