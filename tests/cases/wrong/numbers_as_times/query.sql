CREATE TABLE a (began bigint, ended bigint)
SELECT DATEDIFF(second, began, ended) AS took INTO out FROM a TIMESTAMP BY at
