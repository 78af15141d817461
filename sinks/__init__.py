"""
Destinations of final results, each with its idempotence contract (``base``); to add one, write a module and name it in ``registry``.
Queries and commands may import it.
"""
