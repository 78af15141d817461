"""The ingest job: raw topics in, ordered topics out."""
