SELECT
    one / 0 AS divided, one % 0 AS rest, large + one AS too_large, -large - 2 AS too_small, SQRT(-one) AS root, LOG(one - 1) AS ln_of,
    POWER(10.0, 400) AS power_of, one / 0.5 AS fine
INTO out FROM a TIMESTAMP BY at
