"""
The command line: one module a command, found by entry point.

Nobody imports it. It may import everything.
"""
