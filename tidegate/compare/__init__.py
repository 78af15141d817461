"""
Comparing two ordered topics event by event.
Only :mod:`tidegate.cli` may import it.
"""
