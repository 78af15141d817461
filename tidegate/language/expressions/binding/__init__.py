"""
Binding: sqlglot's syntax trees -> expressions, with every name resolved and every kind checked; errors are QueryError.

Settings, ingest and queries import from here; it imports every other room of expressions.
"""
