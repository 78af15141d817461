"""Analytic functions: LAG, LAST and those over ranks of rows."""
