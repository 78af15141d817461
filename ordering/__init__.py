"""The model: how disordered events become one order. Pure: no Spark, no Kafka, no Redis, no clock."""
