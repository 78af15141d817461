"""
Kafka both ways: reading exact ranges, writing channels, asking the brokers, and clear errors if they refuse; payloads stay opaque.

Payloads, checkpoints, sinks, jobs and commands may import it.
"""
