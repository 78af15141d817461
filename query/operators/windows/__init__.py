"""
Aggregates over windows: exact states of cells, windows as runs of cells, and aggregates that need the rows themselves.

The engine and the analytic functions import it; it imports ``operators.rows``.
"""
