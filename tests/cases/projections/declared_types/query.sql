CREATE TABLE a (n bigint, f float, t nvarchar(max), b bit, r record, place.lat float);
SELECT n, f, t, b, r.x AS x, place.lat AS lat INTO out FROM a TIMESTAMP BY at
