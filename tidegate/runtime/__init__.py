"""Adapters to the outside world: settings, logs, metrics, Spark, Kafka, Redis, the embedded stack."""
