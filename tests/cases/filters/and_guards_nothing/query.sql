SELECT id INTO both FROM a TIMESTAMP BY at WHERE v LIKE '[0-9]%' AND CAST(v AS bigint) > 5;
SELECT id INTO guarded FROM a TIMESTAMP BY at WHERE CASE WHEN v LIKE '[0-9]%' THEN CAST(v AS bigint) END > 5;
WITH numbers AS (SELECT id, v FROM a TIMESTAMP BY at WHERE v LIKE '[0-9]%') SELECT id INTO stepped FROM numbers WHERE CAST(v AS bigint) > 5
