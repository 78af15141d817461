"""
The ordered topic: bytes, keys, partitions, CTIs, the reader's rule, frontiers, and the journal of facts. Imports ordering.columns.
``ingest`` and ``query`` both import it: one writes the topics that the other reads.
"""
