"""
Scripts run on files, without a cluster: ``tidegate local`` and ``tidegate test``.
Only :mod:`query.commands` may import it. It drives ordering's model and query's buckets.
"""
