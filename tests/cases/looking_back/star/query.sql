WITH firsts AS (SELECT * FROM cars TIMESTAMP BY at WHERE ISFIRST(minute, 1) OVER (PARTITION BY make) = 1)
SELECT * INTO firsts FROM firsts;
SELECT make, weight INTO heavy FROM firsts WHERE weight > 20;
SELECT * INTO changes FROM cars TIMESTAMP BY at WHERE LAG(make) OVER (LIMIT DURATION(minute, 1)) <> make
