"""
Whole columns at a time: payloads by row, a table of keys, searches over segments, timestamps. The lowest room: of ordering it imports only
arrays, errors and ticks. Everyone may import it, also ``query``.
"""
