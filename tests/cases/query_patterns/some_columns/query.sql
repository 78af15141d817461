SELECT
    Make, Time
INTO [Output]
FROM [Input]
