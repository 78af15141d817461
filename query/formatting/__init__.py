"""
Scripts laid out in one way: words with their comments, clauses as documents, documents as lines.

Commands and editors import :func:`query.formatting.format.format_script`; it imports the language's syntax alone.
"""
