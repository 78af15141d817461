"""What Spark runs of an ingest job: read, judge, order, write, report. Only the job and explanations import it."""
