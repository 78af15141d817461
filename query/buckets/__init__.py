"""Buckets: the unit of a query's work, how it walks its logs and what it emits when."""
