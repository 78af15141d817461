"""
Recomputing what was published, from raw topics, journal, settings and queries, and comparing it byte for byte.
Only :mod:`tidegate.cli` may import it.
"""
