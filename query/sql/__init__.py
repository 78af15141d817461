"""
SQL -> plans: one module for each clause. Binders raise QueryError with a place in the script and a fix.

The entry is :mod:`query.sql.bind`; only scripts, lint and query extensions import from here. ``window_us_max`` is the longest window,
microseconds.
"""
