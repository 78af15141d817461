"""
PostgreSQL as a store: ``store`` writes, ``target`` knows the table, ``failures`` tells what may be repeated. ``sinks.stores.registry``
may enter; needs psycopg (``pip install 'tidegate[postgres]'``).
"""
