"""
How a running job is seen: logs, metrics, progress in Redis, the recovery report, watermark delay, and the console of commands.

Kafka, payloads, checkpoints, Spark, sinks, jobs and commands may come in.
"""
