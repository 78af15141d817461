"""
Operators that take rows one by one, and what all operators do with rows: the row stage, groups, ranks.

Imported by the other rooms of ``query.operators``, by the engine and the SQL binder.
"""
