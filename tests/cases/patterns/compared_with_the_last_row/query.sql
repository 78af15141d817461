SELECT * INTO out FROM a TIMESTAMP BY at
    MATCH_RECOGNIZE (
        LIMIT DURATION(minute, 1)
        MEASURES LAST(A.bigint) AS a, LAST(B.bigint) AS b
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A B)
        DEFINE
            A AS Last(A.bigint) > 5,
            B AS Last(A.bigint) < B.bigint
    ) AS m
