"""Analytic functions: LAG, LAST, ISFIRST and aggregates with OVER, computed for each row from earlier rows of its group.

The engine imports the operator; the room stands on ``operators.rows`` and on the aggregate states of ``operators.windows``.
"""
