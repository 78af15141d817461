SELECT a / b AS quotient, a % b AS rest, a * b AS product, a - b AS difference, a + b AS total INTO out FROM a TIMESTAMP BY at
