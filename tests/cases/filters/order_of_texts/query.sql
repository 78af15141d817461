SELECT name INTO after_z FROM a TIMESTAMP BY at WHERE name > 'Z';
SELECT MIN(name) AS first, MAX(name) AS last INTO ends FROM a TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
