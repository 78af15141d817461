SELECT
    DATEADD(day, 1, at) AS next_day, DATEADD(hour, -1, at) AS hour_before, DATEADD(month, -1, at) AS month_before,
    DATEDIFF(second, at, '2001-04-01T00:00:00Z') AS seconds, DATEDIFF(day, at, '2001-04-01T00:00:00Z') AS days,
    DATEDIFF(week, at, '2001-04-01') AS weeks, DATEDIFF(quarter, at, '2001-04-01') AS quarters, DATEDIFF(year, at, '2002-01-01') AS years,
    DATEPART(quarter, at) AS quarter, DATEPART(week, at) AS week, DATEPART(dayofyear, at) AS day_of_year,
    DATEPART(weekday, at) AS weekday, DATEPART(hour, at) AS hour, DATEPART(millisecond, at) AS ms, YEAR(at) AS y, MONTH(at) AS m, DAY(at) AS d
INTO out
FROM a TIMESTAMP BY at
