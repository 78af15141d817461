"""
Whole columns at a time: payloads by row, a table of keys, searches over segments, timestamps. The lowest room: imports only ordering.errors
and ordering.ticks. Everyone may import it, also ``query``.
"""
