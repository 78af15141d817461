SELECT a.flight AS flight, p.city AS city INTO known FROM a TIMESTAMP BY at JOIN places p ON a.origin = p.code;
SELECT a.flight AS flight, p.city AS city INTO everything FROM a TIMESTAMP BY at LEFT JOIN places p ON a.origin = p.code
