SELECT o.k AS k, p.v AS paid, s.w AS shipped, System.Timestamp() AS since INTO out
FROM orders TIMESTAMP BY at o
JOIN payments TIMESTAMP BY at p ON o.k = p.k AND DATEDIFF(second, o, p) BETWEEN 0 AND 5
LEFT JOIN shipments TIMESTAMP BY at s ON o.k = s.k AND DATEDIFF(second, p, s) BETWEEN 0 AND 5
