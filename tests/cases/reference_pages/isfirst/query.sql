SELECT v, ISFIRST(mi, 10) AS first, ISFIRST(mi, 10) OVER (PARTITION BY id) AS of_device INTO o FROM i TIMESTAMP BY at
SELECT id, v, ISFIRST(mi, 10) OVER (PARTITION BY id WHEN v > 50 AND type = 'thermostat') AS above, ISFIRST(mi, 10) OVER (PARTITION BY id WHEN v < 50 AND type = 'thermostat') AS under
INTO p FROM i TIMESTAMP BY at WHERE type = 'thermostat'
