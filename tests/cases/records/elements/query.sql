SELECT GetArrayLength(tags) AS n, GetArrayElement(tags, 0) AS first, GetArrayElement(tags, 9) AS tenth,
    GetRecordPropertyValue(sensor, 'id') AS id, GetRecordPropertyValue(sensor, name) AS named
INTO out FROM a TIMESTAMP BY at
