"""
Event files as blocks of records: CSV, JSON and Parquet, for ``tidegate order`` and ``tidegate local``.
"""
