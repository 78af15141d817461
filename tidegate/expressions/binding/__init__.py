"""
Binding: sqlglot's trees of words -> expressions, with every name resolved and every kind checked. What is wrong raises QueryError.

Settings, ingest and queries import from here; it uses every other room of expressions.
"""
