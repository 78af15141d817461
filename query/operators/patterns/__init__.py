"""
MATCH_RECOGNIZE: an automaton over the rows of each partition, and the values of its matches.

The engine imports the operator; it imports ``operators.rows`` and the aggregate states of ``operators.windows``.
"""
