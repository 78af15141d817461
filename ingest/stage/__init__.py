"""What Spark runs of an ingest job: read, judge, write, and tell how far it came."""
