"""
The embedded stack: a real Kafka and Valkey on this machine (``tidegate up``), their jars, processes, configuration and users.
Settings look for its addresses here; commands and tests start it.
"""
