SELECT udf.broken(k) AS b INTO output FROM input TIMESTAMP BY t
