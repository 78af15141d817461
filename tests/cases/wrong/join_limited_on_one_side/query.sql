SELECT a.k AS k INTO out FROM a TIMESTAMP BY at
JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) < 5
