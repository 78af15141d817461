"""
An ordered topic computed again from its raw topics and compared with the one that is there.
Only tools that verify may enter: nothing of the job needs this room.
"""
