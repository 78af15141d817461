"""
PostgreSQL as a store: ``store`` writes, ``reading`` reads, ``target`` checks and makes the table, ``failures`` classifies errors.
``sinks.stores.registry`` may import it; needs psycopg (``pip install 'tidegate[postgres]'``).
"""
