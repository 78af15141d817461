"""
The engine: a plan becomes a program over finished slices of time, which retains the rows that it needs.

Buckets, stages and commands on files import it; it imports plan, operators, columns and reference data, and no clock or broker.
"""
