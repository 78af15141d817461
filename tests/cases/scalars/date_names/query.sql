SELECT
    DATENAME(month, moment) AS month, DATENAME(weekday, moment) AS weekday, DATENAME(year, moment) AS year, DATEPART(weekday, moment) AS day_of_week,
    DATEPART(mi, moment) AS minute, DATEPART(ss, moment) AS second, DATEPART(ms, moment) AS ms, DATEPART(mcs, moment) AS mcs, DATEPART(qq, moment) AS quarter
INTO out FROM a TIMESTAMP BY at
