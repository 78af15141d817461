"""
Starting over: what belongs to an ingest job or a query job, and its deletion as one.
Only the command line enters. It may import both jobs.
"""
