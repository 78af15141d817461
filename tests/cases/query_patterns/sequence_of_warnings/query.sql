SELECT *
FROM input TIMESTAMP BY time OVER ATM_id
    MATCH_RECOGNIZE (
        LIMIT DURATION(minute, 1)
        PARTITION BY ATM_id
        MEASURES
            First(Warning.ATM_id) AS ATM_id,
            First(Warning.Operation_Id) AS First_Warning_Operation_id,
            First(Warning.Time) AS Warning_Time
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (Success* Warning{2,})
        DEFINE
            Success AS Success.Return_Code = 'Success',
            Warning AS Warning.Return_Code <> 'Success'
    ) AS patternMatch
