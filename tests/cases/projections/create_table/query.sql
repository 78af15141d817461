CREATE TABLE a (at datetime, v bigint);
SELECT v + 1 AS next INTO out FROM a TIMESTAMP BY at
