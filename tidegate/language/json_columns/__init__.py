"""
JSON text <-> Arrow columns in C, each part with the Python module that calls it; not available without a compiler.

Expressions, payloads and both jobs import from here; it imports only ``native_parts``.
"""
