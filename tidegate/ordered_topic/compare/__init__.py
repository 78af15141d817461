"""
Compares two ordered topics, A and B, event by event; and the parts of that which verifying takes too: sides, digests, promises.
Commands and tools that compare or verify may enter.
"""
