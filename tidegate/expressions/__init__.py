"""
Expressions of the query language over rows: parsed, bound and evaluated alike by ingest and by queries.

Settings, payloads and both jobs may import from here. Inside, imports only go down: kinds, variants, expression trees, DuckDB and JSON
members are at the bottom, above them functions (and syntax beside them), then evaluation, then binding.
"""
