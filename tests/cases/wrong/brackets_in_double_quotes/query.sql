SELECT k INTO out FROM a TIMESTAMP BY at WHERE k = "[my][Field]"
