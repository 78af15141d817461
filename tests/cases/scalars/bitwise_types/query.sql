WITH MyCTE AS (
    SELECT x, CAST(0 AS BIT) AS bit0, CAST(1 AS BIT) AS bit1, CAST(NULL AS BIT) AS bitN,
        CAST(0 AS BIGINT) AS bigint0, CAST(1 AS BIGINT) AS bigint1, CAST(NULL AS BIGINT) AS bigintN
    FROM a TIMESTAMP BY at)
SELECT
    bit0 & bit0 AS and_bits_00, bit0 & bit1 AS and_bits_01, bit1 & bit0 AS and_bits_10, bit1 & bit1 AS and_bits_11,
    bitN & bit0 AS and_bits_null, bigint0 & bigint0 AS and_00, bigint0 & bigint1 AS and_01,
    bigint1 & bigint0 AS and_10, bigint1 & bigint1 AS and_11, bigintN & bigint0 AS and_null, 170 & 75 AS and_170_75,
    GetType(bit0 & bit1) AS and_type_bit0_bit1, GetType(bit1 & bigint1) AS and_type_bit1_bigint1,
    GetType(bigint1 & bit0) AS and_type_bigint1_bit0, GetType(bigint0 & bigint1) AS and_type_bigint0_bigint1,
    bit0 | bit0 AS or_bits_00, bit0 | bit1 AS or_bits_01, bit1 | bit0 AS or_bits_10, bit1 | bit1 AS or_bits_11,
    bitN | bit0 AS or_bits_null, bigint0 | bigint0 AS or_00, bigint0 | bigint1 AS or_01, bigint1 | bigint0 AS or_10,
    bigint1 | bigint1 AS or_11, bigintN | bigint0 AS or_null, 170 | 75 AS or_170_75,
    GetType(bit0 | bit1) AS or_type_bit0_bit1, GetType(bit1 | bigint1) AS or_type_bit1_bigint1,
    GetType(bigint1 | bit0) AS or_type_bigint1_bit0, GetType(bigint0 | bigint1) AS or_type_bigint0_bigint1,
    bit0 ^ bit0 AS xor_bits_00, bit0 ^ bit1 AS xor_bits_01, bit1 ^ bit0 AS xor_bits_10, bit1 ^ bit1 AS xor_bits_11,
    bitN ^ bit1 AS xor_bits_null, bigint0 ^ bigint0 AS xor_00, bigint0 ^ bigint1 AS xor_01,
    bigint1 ^ bigint0 AS xor_10, bigint1 ^ bigint1 AS xor_11, bigintN ^ bigint0 AS xor_null, 170 ^ 75 AS xor_170_75,
    GetType(bit0 ^ bit1) AS xor_type_bit0_bit1, GetType(bit1 ^ bigint1) AS xor_type_bit1_bigint1,
    GetType(bigint1 ^ bit0) AS xor_type_bigint1_bit0, GetType(bigint0 ^ bigint1) AS xor_type_bigint0_bigint1,
    ~bit0 AS not_bit0, ~bit1 AS not_bit1, ~bitN AS not_bit_null, ~bigint0 AS not_0, ~bigint1 AS not_1,
    ~bigintN AS not_null, ~170 AS not_170, GetType(~bit0) AS not_type_bit, GetType(~bigint0) AS not_type_bigint,
    POWER(x, 3) AS cube, POWER(CAST(x AS float), 3) AS cube_of_float
INTO out
FROM MyCTE
