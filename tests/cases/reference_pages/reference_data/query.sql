SELECT i.at, i.plate, r.id INTO o FROM i TIMESTAMP BY at JOIN registration r ON i.plate = r.plate WHERE r.expired = '1'
