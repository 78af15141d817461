"""
Published results for programs and notebooks (``tidegate.read``): out of a topic, files or tables, as Arrow or pandas.
It may import the readers of topics, sinks and stores; nobody but programs imports it.
"""
