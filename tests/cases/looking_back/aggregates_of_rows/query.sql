SELECT
    v,
    STDEVP(v) OVER (LIMIT DURATION(second, 10)) AS spread,
    VAR(v) OVER (LIMIT DURATION(second, 10)) AS variance,
    COLLECT(v) OVER (LIMIT DURATION(second, 10)) AS seen,
    TopOne(v) OVER (ORDER BY v DESC LIMIT DURATION(second, 10)) AS highest,
    PERCENTILE_CONT(0.5) OVER (ORDER BY v LIMIT DURATION(second, 10)) AS median
INTO out
FROM a TIMESTAMP BY at
