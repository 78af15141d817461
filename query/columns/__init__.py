"""
Columns: Kafka records decoded into tables of events, results encoded into bytes, key hashes, packed and large tables.

The lowest floor of ``query``: any other may import it; it imports ``ordering`` and ``tidegate`` only.
"""
