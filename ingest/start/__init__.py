"""How an ingest job starts: survey, decide, apply; read positions and what a lost checkpoint is replaced by. Only the job comes in."""
