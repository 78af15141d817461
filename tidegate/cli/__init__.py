"""
The command line: one module for each command, found by entry point.
No module imports it. It may import everything.
"""
