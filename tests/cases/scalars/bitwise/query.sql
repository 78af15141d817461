SELECT v & 6 AS both, v | 6 AS either, v ^ 6 AS one, ~v AS none, v & 6 + 1 AS first, v + 1 & 6 AS second, -~v AS next
INTO out FROM a TIMESTAMP BY at WHERE v & 8 = 0 OR v IS NULL
