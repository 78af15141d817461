"""
The functions of the query language, a module for each family; :mod:`.catalog` lists them all and explains how to add one.

Evaluation, binding and extensions import from here. It imports values and expression trees, never syntax.
"""
