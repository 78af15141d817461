"""
Published results for programs and notebooks (``tidegate.read``): out of a topic, files or tables, as Arrow or pandas.
It may import the readers of topics, sinks and stores, and asks queries for the columns; nobody but programs imports it.
"""
