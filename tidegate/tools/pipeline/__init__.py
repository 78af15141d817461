"""
All stages of a configuration in one process: ``tidegate run``.

Each stage is the one that its own command runs, with the same checkpoint: only the Spark session, the workers and the terminal are shared.
"""
