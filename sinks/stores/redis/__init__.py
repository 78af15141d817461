"""
Redis or Valkey as a store: ``store`` writes, ``commands`` turns results into commands, ``reading`` reads what stands, ``failures``
tells what may be repeated. ``sinks.stores.registry`` may enter.
"""
