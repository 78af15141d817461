"""SQLite as a store of ``tidegate sink``: ``settings`` is its table, ``store`` writes, ``reading`` is for ``tidegate verify``."""
