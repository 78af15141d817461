"""
Compares two ordered topics, A and B, event by event.
Only :mod:`tidegate.cli` may import it.
"""
