SELECT k, v AS Value, v + 1, UPPER(k), k AS [two words] INTO out FROM a TIMESTAMP BY at
