SELECT GetMetadataPropertyValue(a, 'EventId') AS id INTO out FROM a TIMESTAMP BY at
