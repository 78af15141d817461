"""The embedded stack: Kafka and Valkey started from here."""
