SELECT
    input.Equipment_id AS Equipment_id,
    input.Equipment_current_location AS Equipment_current_location,
    input.Time AS Time
FROM input TIMESTAMP BY time
JOIN referenceInput
    ON input.Equipment_id = referenceInput.Equipment_id
WHERE
    ST_WITHIN(input.Equipment_current_location, referenceInput.Equipment_lease_location) = 0
