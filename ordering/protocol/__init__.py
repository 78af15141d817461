"""
The ordered topic: bytes, keys, partitions, CTIs, the reader's rule, frontiers, and the journal of facts.

Imports ordering.columns. Both jobs meet here: ``ingest`` writes what ``query`` reads.
"""
