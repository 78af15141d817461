"""What Spark runs of a query: plan ranges, read them, run buckets. Only start and job import it."""
