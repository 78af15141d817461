"""What Spark runs of a query: plan ranges, read them, work on buckets. Only start and job come in."""
