SELECT GetArrayElements(l) AS l INTO out FROM a TIMESTAMP BY at
