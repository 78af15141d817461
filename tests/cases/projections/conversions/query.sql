SELECT
    CONVERT(bigint, s) AS whole, TRY_CONVERT(float, t) AS none, CAST(n AS bit) AS set_bit, CAST(n - n AS bit) AS clear_bit, CAST(f AS bigint) AS cut,
    CAST(f AS nvarchar(max)) AS text, CAST('2001-02-03' AS datetime) AS moment, CAST('[1,2]' AS array) AS list
INTO out FROM a TIMESTAMP BY at
