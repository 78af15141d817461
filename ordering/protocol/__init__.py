"""The ordered topic: bytes, keys, partitions, CTIs, the reader's rule, the journal."""
