"""
A job's checkpoint folder: the process that works with it, the settings and topics it is bound to, its output start, and events that memory
has no room for.

Jobs and commands may import it.
"""
