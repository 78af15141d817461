"""
JSON text <-> Arrow columns in C, each part with the Python module that calls it. Without a compiler nothing here is available.

Expressions and payloads, and the fields and results of both jobs, import from here; it imports only ``native_parts``.
"""
