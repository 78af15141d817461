"""
Evaluating expressions over whole columns: translation to DuckDB, kinds known before any row, calls of column functions.

Binding and both jobs import from here. It imports functions and values, never syntax.
"""
