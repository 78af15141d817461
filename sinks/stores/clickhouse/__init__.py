"""
ClickHouse as a store, by its HTTP interface: ``store`` writes, ``target`` knows the tables, ``statements`` are what is said to the server,
``client`` sends them, ``reading`` reads what stands. ``sinks.stores.registry`` may enter.
"""
