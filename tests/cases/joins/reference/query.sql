SELECT a.flight AS flight, p.city AS city INTO known FROM a TIMESTAMP BY at JOIN places p ON a.origin = p.code;
SELECT a.flight AS flight, p.city AS city INTO everything FROM a TIMESTAMP BY at LEFT JOIN places p ON a.origin = p.code;
SELECT a.flight AS flight, p.city AS city INTO pairs FROM a TIMESTAMP BY at CROSS JOIN places p WHERE a.origin > p.code
