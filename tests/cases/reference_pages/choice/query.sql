SELECT CASE type WHEN 'S' THEN 'Sedan' WHEN 'T' THEN 'Truck' WHEN 'V' THEN 'Van' ELSE NULL END AS name,
    CASE WHEN heat < 60 THEN 'Alert' ELSE 'OK' END AS status,
    COALESCE(0, 'a') AS c1, COALESCE(NULL, 'a') AS c2, COALESCE(NULL, NULL) AS c3, COALESCE(NULL, NULL, 2, NULL) AS c4, COALESCE(a, b) AS c5,
    NULLIF(4, 4) AS same, NULLIF(5, 7) AS different, NULLIF(LAG(heat) OVER (PARTITION BY type LIMIT DURATION(hour, 1)), heat) AS before_if_changed
INTO o FROM i TIMESTAMP BY at
