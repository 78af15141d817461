"""
Starting Spark's processes: the folders, files and task slots of one job, and a small and frugal Python for its workers.

Beside the rest of ``tidegate.platform.spark`` only those come here who open batches.
"""
