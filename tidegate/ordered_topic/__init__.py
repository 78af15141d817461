"""
Reading ordered topics: one decoder, one walk by the reader's rule, one walk of tails, one search for records that are none of the protocol.

Sinks, both jobs and all tools read ordered and result topics through this room; it knows none of them.
"""
