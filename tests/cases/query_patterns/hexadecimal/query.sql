SELECT
    Device_id,
    udf.Hex2Int(HexValue) AS Decimal
FROM
    Input
