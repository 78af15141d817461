SELECT CreateLineString(CreatePoint(latitude, longitude), CreatePoint(10.0, 10.0), CreatePoint(10.5, 10.5)) AS line INTO out FROM a TIMESTAMP BY at
