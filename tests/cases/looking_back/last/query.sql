SELECT id, DATEDIFF(second, LAST(at) OVER (PARTITION BY id LIMIT DURATION(minute, 1) WHEN what = 'start'), at) AS seconds
INTO out FROM a TIMESTAMP BY at WHERE what = 'end'
