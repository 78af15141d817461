"""
Starting Spark's processes: the folders and files of one job, and a small and frugal Python for its workers.

Only the rest of ``tidegate.platform.spark`` comes here.
"""
