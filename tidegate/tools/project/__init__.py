"""
New projects (``tidegate new``): configuration, query, sample records and a case, from a template or from what a topic holds.
It may import everything but the commands.
"""
