"""The journal of ingest jobs: what must be written down before it is used, in Redis, and how it is made again."""
