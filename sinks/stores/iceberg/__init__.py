"""
Iceberg as a store: ``store`` writes, ``reading`` reads what stands, ``target`` knows the table's columns, ``progress`` finds how far the
table is, ``failures`` tells what may be repeated. ``sinks.stores.registry`` may enter; needs pyiceberg
(``pip install 'tidegate[iceberg]'``).
"""
