"""
A kit for tests of your own queries, functions, operators and sinks: in process, without services.
Tests may import it; nothing of a running job does. The names below keep their meaning.
"""

from tidegate.testing.run_query import Fate, QueryRun, Result, ordered_topic, run_query

__all__ = ["Fate", "QueryRun", "Result", "ordered_topic", "run_query"]
