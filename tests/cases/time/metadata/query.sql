SELECT
    v, GetMetadataPropertyValue(a, 'EventId') AS id, GetMetadataPropertyValue(a, '[EventHub].[Offset]') AS o,
    GetMetadataPropertyValue(a, '[EventHub].[PartitionId]') AS p, GetMetadataPropertyValue(a, 'EventHub.EventEnqueuedUtcTime') AS t,
    GetMetadataPropertyValue(a, '[IoTHub].[ConnectionDeviceId]') AS device, IoTHub.ConnectionDeviceId AS same
INTO out
FROM a TIMESTAMP BY at
