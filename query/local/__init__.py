"""
Scripts run on files, without a cluster: ``tidegate local`` and ``tidegate test``.
:mod:`query.commands` and :mod:`tidegate.testing` may import it. It drives ordering's model and query's buckets.
"""
