-- A function is called by main or by its own name; no variable outlives a call; a Date is read in UTC; NULL comes in and goes out.
SELECT UDF.hex2Int(h) AS number, udf.describe(k) AS about, udf.weekday(CAST(t AS datetime)) AS weekday,
       udf.next_day(CAST(t AS datetime)) AS next_day, udf.json(legs) AS legs, udf.half(n) AS half
INTO output FROM input TIMESTAMP BY t
