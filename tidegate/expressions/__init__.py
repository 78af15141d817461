"""
Expressions of the query language over rows: read, bound and evaluated alike by ingest and by queries.

At the bottom: kinds, variants, expression trees, DuckDB, fields of JSON. Above them functions, then evaluation, then binding; syntax
stands beside functions. An arrow runs only downwards. Settings, payloads and both jobs may import from here.
"""
