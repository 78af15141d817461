"""Reference data: tables, their files, lookups, and which versions may be deleted. Engine, buckets, start and stage may import it."""
