"""
Files of events: their readers, and ``tidegate order``, which puts them in order.
Only :mod:`tidegate.cli` and :mod:`tidegate.local` may import it.
"""
