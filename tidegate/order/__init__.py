"""
Readers of event files, and ``tidegate order``, which puts the events of a file in order.
Only :mod:`tidegate.cli` and :mod:`tidegate.local` may import it.
"""
