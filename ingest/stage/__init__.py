"""The stage of an ingest job, which Spark runs: read, judge, order, write, report. Only the job and explanations import it."""
