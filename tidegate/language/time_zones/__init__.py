"""
Time zones: the clocks of places, read from the package ``tzdata`` alone, never from the operating system or from DuckDB.

Expressions, windows and whoever shows the database's version may enter.
"""
