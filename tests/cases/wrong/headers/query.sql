SELECT GetMetadataPropertyValue(a, '[User].[tenant]') AS tenant INTO out FROM a TIMESTAMP BY at
