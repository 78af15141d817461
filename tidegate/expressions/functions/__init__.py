"""
The functions of the query language, a module for each family; :mod:`.catalog` lists them all and says how to add one.

Evaluation, binding and extensions import from here. It imports values and expression trees, and knows no SQL text.
"""
