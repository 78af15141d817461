"""The ingest job: raw topics in, ordered topics out. Only the command line and tests import it."""
