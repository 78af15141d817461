SELECT f.no AS no, p.gate AS gate INTO known FROM flights TIMESTAMP BY at f JOIN gates p ON f.origin = p.code;
SELECT f.no AS no, p.gate AS gate INTO everything FROM flights TIMESTAMP BY at f LEFT JOIN gates p ON f.origin = p.code
