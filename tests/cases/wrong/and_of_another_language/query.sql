SELECT k INTO out FROM a TIMESTAMP BY at
WHERE v > 1 && k = 'x'
