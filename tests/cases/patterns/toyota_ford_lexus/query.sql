SELECT *
INTO out
FROM a TIMESTAMP BY time
    MATCH_RECOGNIZE (
        LIMIT DURATION (minute, 1)
        PARTITION BY tollBoothId
        MEASURES
            Last(Toyota.LicensePlate) AS toyotaLicensePlate,
            Last(Lexus.LicensePlate) AS lexusLicensePlate
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (Toyota+ Ford* Lexus+)
        DEFINE
            Toyota AS Toyota.make = 'Toyota',
            Ford AS Ford.make = 'Ford',
            Lexus AS Lexus.make = 'Lexus'
    ) AS T
