SELECT a.k AS k, a.v AS v, b.w AS w, System.Timestamp() AS s
INTO out
FROM a TIMESTAMP BY at OVER k JOIN b TIMESTAMP BY at OVER k ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5
