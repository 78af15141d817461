"""
Copies a result topic into the stores of its output: ``feed`` reads, ``copier`` writes, ``job`` runs them.
Commands and query jobs may enter.
"""
