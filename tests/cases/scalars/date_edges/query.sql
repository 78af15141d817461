SELECT
    DATEADD(month, 1, january) AS february, DATEADD(year, 1, leap) AS no_leap, DATEADD(year, 9000, leap) AS too_far,
    DATEDIFF(day, '2000-02-28T23:00:00Z', '2000-03-01T01:00:00Z') AS days, DATEDIFF(hour, '2001-01-01T02:00:00Z', '2001-01-01T00:30:00Z') AS back,
    DATETIMEFROMPARTS(2001, 2, 3, 4, 5, 6, 7) AS made
INTO out
FROM a TIMESTAMP BY at
