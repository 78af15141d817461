SELECT GetMetadataPropertyValue(a, 'EventHub') AS properties INTO out FROM a TIMESTAMP BY at
