-- An order counts as paid if its payment comes within half an hour; the price is that of the moment of payment.
WITH matched AS (
    SELECT o.id AS id, o.product AS product, o.quantity AS quantity, y.cents AS paid
    FROM orders TIMESTAMP BY at o
    JOIN payments TIMESTAMP BY at y ON o.id = y.id AND DATEDIFF(minute, o, y) BETWEEN 0 AND 30
),
priced AS (
    SELECT m.id AS id, m.product AS product, m.quantity * p.cents AS due, m.paid AS paid
    FROM matched m JOIN prices p ON m.product = p.product
)

SELECT id, product, due, paid, System.Timestamp() AS paid_at
INTO paid
FROM priced;

SELECT product, System.Timestamp() AS hour_end, COUNT(*) AS orders, SUM(due) AS due
INTO revenue
FROM priced
GROUP BY product, TumblingWindow(hour, 1)
