"""
ClickHouse as a store, by its HTTP interface: ``store`` writes, ``reading`` reads, ``target`` checks and makes the tables, ``statements``
has the SQL, ``client`` sends it. ``sinks.stores.registry`` may import it.
"""
