"""How an ingest job starts: survey, decide, apply; read positions, and resuming without a checkpoint. Only the job imports it."""
