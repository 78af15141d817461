SELECT REPLACE(t, sought, other) AS r INTO o FROM i TIMESTAMP BY at
