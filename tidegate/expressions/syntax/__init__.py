"""The query language as text: dialect, statements, paths, slips and errors."""
