SELECT *, v * 2 AS v, v AS old INTO out FROM a TIMESTAMP BY at;
SELECT place.*, k INTO places FROM a TIMESTAMP BY at
