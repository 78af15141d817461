SELECT
    CAST(t AS record).place.lat AS lat, TRY_CAST(t AS array) AS none, GetArrayElement(CAST(l AS array), 1).to AS destination,
    TRY_CAST(l AS record) AS no_record
INTO out FROM a TIMESTAMP BY at
