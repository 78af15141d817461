"""
Operators that FROM calls by name: ``shift`` moves rows in time, ``active`` counts the rows that are alive.

The SQL binder imports them; it imports ``operators.rows``.
"""
