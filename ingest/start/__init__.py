"""Where an ingest job starts: positions to read from, the outputs' last valid CTIs."""
