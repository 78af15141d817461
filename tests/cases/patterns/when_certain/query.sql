SELECT m.code, m.names, System.Timestamp() AS at
INTO ended FROM a TIMESTAMP BY at
    MATCH_RECOGNIZE (
        LIMIT DURATION(second, 10)
        MEASURES FIRST(Up.code) AS code, Classifier() AS names
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (Up Down)
        DEFINE Up AS Up.v > 0, Down AS Down.v < 0
    ) AS m;

SELECT m.code, m.names, System.Timestamp() AS at
INTO open FROM a TIMESTAMP BY at
    MATCH_RECOGNIZE (
        LIMIT DURATION(second, 10)
        MEASURES FIRST(Up.code) AS code, Classifier() AS names
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (Up Down+)
        DEFINE Up AS Up.v > 0, Down AS Down.v < 0
    ) AS m
