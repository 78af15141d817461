"""The commands of ingest: raw topics, the journal, skipped records, explanations, and files in order."""
