"""
Delta Lake as a store: ``store`` writes, ``reading`` reads, ``target`` checks the table's columns, ``failures`` classifies errors.
``sinks.stores.registry`` may import it; needs deltalake (``pip install 'tidegate[delta]'``).
"""
