"""
Iceberg as a store: ``store`` writes, ``reading`` reads what stands, ``target`` knows the table's columns, ``progress`` finds how far the
table is, ``failures`` tells what may be repeated, ``rest_line`` how long a REST catalog may take. ``sinks.stores.registry`` may enter;
needs pyiceberg (``pip install 'tidegate[iceberg]'``).
"""
