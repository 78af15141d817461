SELECT DATEADD(hour, 2, came) AS later, DATEDIFF(minute, came, CAST('2014-09-10 12:00:00' AS datetime)) AS until_noon,
    DATEDIFF(minute, came, DATEADD(hour, 2, came)) AS two_hours, DATENAME(month, came) AS name, DATEPART(weekday, came) AS weekday,
    DATETIMEFROMPARTS(2014, 9, 10, 12, DATEPART(minute, came) + 10, 00, 00) AS leaves, DAY(came) AS d, MONTH(came) AS m, YEAR(came) AS y
INTO o FROM i TIMESTAMP BY came WHERE toll > 5
