"""
Analytic functions: LAG, LAST, ISFIRST and aggregates with OVER, computed for each row from earlier rows of its group.

The engine imports the operator; it imports ``operators.rows`` and the aggregate states of ``operators.windows``.
"""
