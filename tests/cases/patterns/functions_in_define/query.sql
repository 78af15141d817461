SELECT * INTO out FROM a TIMESTAMP BY at
    MATCH_RECOGNIZE (
        LIMIT DURATION(minute, 1)
        MEASURES COUNT(*) AS n
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A B)
        DEFINE A AS MAX(A.x + A.y) > 5, B AS MIN(ABS(B.x)) < 2
    ) AS m
