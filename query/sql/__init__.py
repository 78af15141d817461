"""
SQL -> plans: one module for each clause. Every binder raises QueryError with a place in the script and what to write instead.

The entry is :mod:`query.sql.bind`; only scripts, lint and extensions of queries come in. ``window_us_max`` is the longest window.
"""
