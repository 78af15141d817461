"""
What jobs and commands stand on: settings, Kafka, Redis, Spark, checkpoints, what is observed, and the embedded servers.

Payloads stay opaque here; their meaning begins in :mod:`tidegate.records`.
"""
