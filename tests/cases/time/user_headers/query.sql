WITH tagged AS (
    SELECT GetMetadataPropertyValue(a, '[User].[tenant]') AS tenant, GetMetadataPropertyValue(a, '[User].[trace-id]') AS trace, v
    FROM a TIMESTAMP BY at
)
SELECT tenant, trace, v INTO rows FROM tagged
SELECT tenant, COUNT(*) AS n, SUM(v) AS total INTO out FROM tagged GROUP BY tenant, TumblingWindow(second, 10)
SELECT v INTO chosen FROM a TIMESTAMP BY at WHERE GetMetadataPropertyValue(a, '[User].[tenant]') = 'x'
SELECT LEN(GetMetadataPropertyValue(a, '[User].[tenant]')) AS length, MAX(v) AS most
INTO lengths
FROM a TIMESTAMP BY at
GROUP BY LEN(GetMetadataPropertyValue(a, '[User].[tenant]')), TumblingWindow(second, 20)
