"""
The pipeline as a graph: raw topics, ingest jobs, ordered topics, queries, their result topics and stores.

Law: each node of a job has what ``tidegate status --format json`` says of it, and nothing else. A topic or store that several jobs share is
one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """An input's raw topics, and their partitions that never spoke."""

    topics: tuple[str, ...]
    never_spoke: tuple[str, ...]


def make_graph(
    jobs: Mapping[str, Mapping[str, Any]],
    inputs: Mapping[str, InputPlaces],
    ordered: Mapping[str, str],
    reads: Mapping[str, Iterable[str]],
    topics: Mapping[str, str],
    stores: Mapping[str, Iterable[str]],
) -> dict[str, Any]:
    """
    Return nodes and edges.

    Args:
        jobs: By ``ingest NAME``, ``query NAME`` or ``sink NAME`` what is shown of it.
        ordered: The ordered topic of each input.
        reads: The inputs or outputs that the query of each output reads.
        topics: The result topic of each output.
        stores: The stores of each output.
    """
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[tuple[str, str]] = []

    def topic_node(name: str, **more: Any) -> str:
        nodes.setdefault(f"topic {name}", {"id": f"topic {name}", "kind": "topic", "name": name} | more)
        return f"topic {name}"

    def job_node(name: str) -> str:
        nodes[name] = {"id": name, "kind": "job", "name": name, **jobs.get(name, {"state": "never started"})}
        return name

    for name, places in inputs.items():
        job = job_node(f"ingest {name}")
        edges += [
            (topic_node(topic, never_spoke=[each for each in places.never_spoke if each.rpartition("-")[0] == topic]), job)
            for topic in places.topics
        ]
        edges.append((job, topic_node(ordered[name])))
    for name, sources in reads.items():
        job = job_node(f"query {name}")
        edges += [(topic_node(ordered.get(source) or topics.get(source, source)), job) for source in sources]
        edges.append((job, topic_node(topics[name])))
        for store in stores.get(name, ()):
            place = f"store {store} of {name}"
            nodes[place] = {"id": place, "kind": "store", "name": f"{store}: {name}"}
            sink = f"sink {name}"
            if sink in jobs:
                edges += [(topic_node(topics[name]), job_node(sink)), (sink, place)]
            else:
                edges.append((job, place))
    return {"nodes": list(nodes.values()), "edges": list(dict.fromkeys(edges))}
