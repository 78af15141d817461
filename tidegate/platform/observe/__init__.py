"""
Views of a running job: logs, metrics, progress in Redis, recovery report, watermark delay, and the console of commands.
Kafka, payloads, checkpoints, Spark, sinks, jobs and commands may import it.
"""
