"""
Delta Lake as a store: ``store`` writes, ``target`` knows the table's columns, ``failures`` tells what may be repeated.
``sinks.stores.registry`` may enter; needs deltalake (``pip install 'tidegate[delta]'``).
"""
