"""The journal of ingest jobs in Redis: facts are written before they are used, and can be rebuilt. Planner, start and job may import it."""
