SELECT System.Timestamp() AS [end], SUM(v) AS v INTO hours FROM a TIMESTAMP BY at
GROUP BY TumblingWindow(hour, 1, TimeZone('Australia/Lord_Howe'));
SELECT System.Timestamp() AT TIME ZONE 'Australia/Lord_Howe' AS [end], SUM(v) AS v INTO halves FROM a TIMESTAMP BY at
GROUP BY TumblingWindow(minute, 30, TimeZone('Australia/Lord_Howe'))
