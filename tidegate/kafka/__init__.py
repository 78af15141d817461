"""
Kafka both ways: reading exact ranges, writing channels, asking the brokers, and what they refuse in words a user can act on.

Payloads, checkpoints, sinks, jobs and commands may come in; what lies in a payload is nobody's business here.
"""
