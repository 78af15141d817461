SELECT GetMetadataPropertyValue(a, '[Blob].[Name]') AS name INTO out FROM a TIMESTAMP BY at
