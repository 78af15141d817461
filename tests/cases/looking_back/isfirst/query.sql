SELECT v, ISFIRST(second, 10) AS of_all, ISFIRST(second, 10) OVER (PARTITION BY k) AS of_k, ISFIRST(second, 10) OVER (WHEN v > 2) AS of_big
INTO out FROM a TIMESTAMP BY at
