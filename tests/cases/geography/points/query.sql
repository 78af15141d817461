SELECT CreatePoint(latitude, longitude) AS place INTO out FROM a TIMESTAMP BY at
