"""The pipeline as a graph: its edges, how far a job is behind, and whether that grows."""

from __future__ import annotations

from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.observe.reports import IngestReport
from tidegate.tools.page.graph import InputPlaces, Trends, make_graph, seconds_behind


def report(partition: int, next_offset: int, arrival_s: int | None) -> IngestReport:
    """Return the report of a partition."""
    return IngestReport("t", partition, next_offset=next_offset, arrival_us=NEVER if arrival_s is None else arrival_s * SECOND_US)


def test_the_slowest_partition_with_unread_records_says_how_far_a_job_is_behind() -> None:
    """A partition that is read to its end is not behind, however long ago its last record came."""
    reports = [report(0, 10, 5), report(1, 10, 90), report(2, 10, 80)]
    now_us = 100 * SECOND_US
    assert seconds_behind(reports, {("t", 0): 10, ("t", 1): 12, ("t", 2): 11}, now_us) == 20.0
    assert seconds_behind(reports, {("t", number): 10 for number in range(3)}, now_us) == 0.0
    assert seconds_behind([report(0, 0, None)], {("t", 0): 3}, now_us) is None


def test_a_lag_that_shrinks_says_when_it_is_cleared() -> None:
    """The change is that of the newest minute; a lag that grows is never cleared."""
    trends = Trends()
    assert trends.add("a", 1_000, 0.0) == (None, None)
    assert trends.add("a", 800, 10.0) == (-20.0, 40.0)
    assert trends.add("a", 900, 70.0) == (1.7, None)
    assert trends.add("a", 0, 71.0)[1] == 0.0
    assert trends.add("b", 0, 0.0) == (None, 0.0)


def test_a_chain_of_queries_is_one_graph() -> None:
    """A result topic that another query reads is one node, and each store hangs on what fills it."""
    graph = make_graph(
        {"ingest a": {"state": "live"}, "query x": {"state": "live"}, "sink y": {"state": "gone"}},
        {"a": InputPlaces(("raw",), {("raw", 0): 0}, ("raw-0",))},
        {"a": "a.ordered"},
        {"x": ["a"], "y": ["x"]},
        {"x": "x", "y": "y.results"},
        {"x": ["files"], "y": ["postgres"]},
    )
    assert graph["edges"] == [
        ("topic raw", "ingest a"),
        ("ingest a", "topic a.ordered"),
        ("topic a.ordered", "query x"),
        ("query x", "topic x"),
        ("query x", "store files of x"),
        ("topic x", "query y"),
        ("query y", "topic y.results"),
        ("topic y.results", "sink y"),
        ("sink y", "store postgres of y"),
    ]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert nodes["topic raw"]["never_spoke"] == ["raw-0"]
    assert nodes["query y"]["state"] == "never started"
