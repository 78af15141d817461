"""
Plans: nodes, windows, the operator type, and how the work is split between buckets.

Every other room of ``query`` but ``columns`` may import it; it imports ``query.columns`` and lower floors.
"""
