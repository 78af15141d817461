"""
Redis or Valkey as a store: ``store`` writes, ``commands`` turns results into commands, ``reading`` reads, ``failures`` classifies errors.
``sinks.stores.registry`` may import it.
"""
