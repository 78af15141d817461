"""
Settings: read from file, environment and flags (load, sources), checked by their tables and kinds, explained (manual, problems).
To add a setting, add a field to its table in ``tables/``; docs/reference/settings.md is made from it. Every room above may import settings.
"""
