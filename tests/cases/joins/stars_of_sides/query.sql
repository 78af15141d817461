WITH second AS (SELECT k, w, at AS at_b, w * 2 AS v FROM b TIMESTAMP BY at)
SELECT a.*, b.* INTO inputs FROM a TIMESTAMP BY at LEFT JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5;
SELECT b.*, a.* INTO exchanged FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5;
SELECT x.*, y.* INTO steps FROM second x JOIN second y ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN 1 AND 5
