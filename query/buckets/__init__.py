"""
Buckets: logs of ordered topics in, numbered results and CTIs out; the kinds of buckets and their common parts.

The stage of a job and ``query.local`` drive them, ``query.start`` may import them; they do not depend on Spark or Kafka.
"""
