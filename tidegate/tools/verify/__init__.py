"""
Computes published results again from raw topics, journal, settings and queries, and compares them byte for byte.
*Standing* rows and files are those found in topics, folders and stores; *computed* ones come from the recomputation.
Only :mod:`tidegate.tools.commands` may import it.
"""
