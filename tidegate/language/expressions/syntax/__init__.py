"""
The query language as text: its dialect, its statements, and errors with a place in the script; names have no meaning yet.

Binding and the SQL room of queries import from here; it imports only :mod:`tidegate.language.expressions.kinds`.
"""
