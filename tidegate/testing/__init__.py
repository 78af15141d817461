"""
A kit for tests of your own queries, functions, operators and sinks: in process, without services.
Tests may import it; nothing of a running job does. The names below keep their meaning.
"""

from ingest.tuning.profiled_rows import rows_like
from query.testing.law import law_of
from query.testing.run_query import Fate, QueryRun, Result, ordered_topic, run_query
from query.testing.sink_law import LawBrokenError, SinkUnderTest
from tidegate.testing.virtual_time import VirtualTime

__all__ = [
    "Fate",
    "LawBrokenError",
    "QueryRun",
    "Result",
    "SinkUnderTest",
    "VirtualTime",
    "law_of",
    "ordered_topic",
    "rows_like",
    "run_query",
]
