SELECT g.guest AS guest, c.[by] AS [by], System.Timestamp() AS s
INTO out
FROM guests TIMESTAMP BY at g
LEFT JOIN cleanings TIMESTAMP BY at c
    ON g.room = c.room AND DATEDIFF(second, g, c) BETWEEN -5 AND 5 AND g < c.until AND c < g.until
