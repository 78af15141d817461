-- The first line is a comment.
SELECT 'it''s' AS quoted, N'größer' AS national, '-- no /* comment */' AS text, /* one
   over two lines */ v
INTO out -- here too
FROM a TIMESTAMP BY at
