SELECT m.names INTO either FROM a TIMESTAMP BY at
    MATCH_RECOGNIZE (
        LIMIT DURATION(minute, 1)
        MEASURES Classifier() AS names
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A+ (B | C))
        DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind = 'c'
    ) AS m;

SELECT m.names INTO optional FROM a TIMESTAMP BY at
    MATCH_RECOGNIZE (
        LIMIT DURATION(minute, 1)
        MEASURES Classifier() AS names
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A? B+)
        DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
    ) AS m
