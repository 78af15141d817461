"""
Operators: one module each, computing over a finished slice of time. They hold no state; the engine keeps their rows.

The engine, the SQL binder and the tests import them; they import ``query.plan``, ``query.columns`` and ``query.reference``.
"""
