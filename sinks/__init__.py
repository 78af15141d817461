"""
Destinations of final results; ``base`` states their idempotence contract. To add one, write a module and name it in ``registry``.
Queries and commands may import it.
"""
