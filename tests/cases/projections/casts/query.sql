SELECT
    TRY_CAST(s AS bigint) AS whole,
    TRY_CAST(s AS float) AS number,
    TRY_CAST(s AS datetime) AS moment,
    CAST(n AS bigint) AS cut,
    CAST(n AS nvarchar(max)) AS text
INTO out
FROM a TIMESTAMP BY at
