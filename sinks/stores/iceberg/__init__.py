"""
Iceberg as a store: ``store`` writes, ``reading`` reads, ``target`` checks the table's columns, ``progress`` finds the table's progress,
``failures`` classifies errors, ``rest_timeouts`` limits the time of REST catalogs. ``sinks.stores.registry`` may import it; needs pyiceberg
(``pip install 'tidegate[iceberg]'``).
"""
