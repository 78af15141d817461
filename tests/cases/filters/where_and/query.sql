SELECT k, v INTO out FROM a TIMESTAMP BY at WHERE k = 'x' AND v > 4
