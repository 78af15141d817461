SELECT ST_WITHIN(deliveryDestination, warehouse) AS arrived INTO out FROM a TIMESTAMP BY at
