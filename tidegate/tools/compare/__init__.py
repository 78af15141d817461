"""
Compares two ordered topics, A and B, event by event.
Only :mod:`tidegate.tools.commands` may import it.
"""
