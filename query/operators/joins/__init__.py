"""
Joins: of two streams over time, and with reference data.

The engine imports the two operators; it imports ``operators.rows``.
"""
