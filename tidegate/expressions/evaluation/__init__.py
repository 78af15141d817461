"""
Evaluating expressions over whole columns: translation to DuckDB, the kinds known beforehand, calls of column functions.

Binding, and the fields and operators of both jobs, import from here. It imports functions and values, and knows no SQL text.
"""
