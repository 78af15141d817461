"""
Buckets: logs of ordered topics in, numbered results and CTIs out; the kinds of buckets and what they share.

The stage of a job and ``tidegate.local`` drive them, ``query.start`` may import them; they know neither Spark nor Kafka.
"""
