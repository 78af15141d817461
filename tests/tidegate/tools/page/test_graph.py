"""The pipeline as a graph: its nodes and edges."""

from __future__ import annotations

from tidegate.tools.page.graph import InputPlaces, make_graph


def test_a_chain_of_queries_is_one_graph() -> None:
    """A result topic that another query reads is one node, and each store hangs on what fills it."""
    graph = make_graph(
        {"ingest a": {"state": "live"}, "query x": {"state": "live"}, "sink y": {"state": "gone"}},
        {"a": InputPlaces(("raw",), ("raw-0",))},
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
