"""
What is in a topic, for people (``tidegate peek``): the newest records, decoded.
It may import the readers of topics and everything below them.
"""
