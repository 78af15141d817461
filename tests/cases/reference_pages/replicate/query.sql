SELECT line, CONCAT(REPLICATE('0', 4 - LEN(line)), line) AS code INTO o FROM i TIMESTAMP BY at
