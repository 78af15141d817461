"""
The pipeline as a graph: raw topics, ingest jobs, ordered topics, queries, their result topics and stores, and how far each job is behind.

Law: a job is as far behind as its slowest partition: the seconds since the arrival of the newest record that is judged there, if a newer
one waits. A trend needs two looks, so it is known only while somebody looks; it is that of the newest minute.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.platform.observe.reports import IngestReport

TREND_S = 60.0
_SPAN_MIN_S = 2.0


class Trends:
    """The lag of each job over the newest minute of looks."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, job: str, lag: int, now_s: float | None = None) -> tuple[float | None, float | None]:
        """Take a lag; return its change in events per second, and the seconds until it is cleared; None: not known, or never."""
        at_s = time.monotonic() if now_s is None else now_s
        seen = self._seen.setdefault(job, deque())
        seen.append((at_s, lag))
        while seen[0][0] < at_s - TREND_S:
            seen.popleft()
        first_s, first = seen[0]
        if at_s - first_s < _SPAN_MIN_S:
            return None, 0.0 if lag == 0 else None
        slope = (lag - first) / (at_s - first_s)
        return round(slope, 1), 0.0 if lag == 0 else round(lag / -slope, 1) if slope < 0 else None


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """An input's raw partitions with their ends, and those that never spoke."""

    topics: tuple[str, ...]
    ends: Mapping[tuple[str, int], int]
    never_spoke: tuple[str, ...]


def seconds_behind(reports: Iterable[IngestReport], ends: Mapping[tuple[str, int], int], now_us: int) -> float | None:
    """Return the seconds that the slowest partition is behind; 0 if nothing waits; None: no partition has reported an arrival."""
    known = [report for report in reports if report.arrival_us > NEVER]
    waiting = [report.arrival_us for report in known if ends.get(report.place, 0) > report.next_offset and not report.is_final]
    if not known:
        return None
    return round(max(now_us - min(waiting), 0) / SECOND_US, 1) if waiting else 0.0


def watermark_delay_s(watermark_us: int | None, now_us: int) -> float | None:
    """Return how far a watermark is behind the clock; None: there is none, or it has ended."""
    return None if watermark_us is None or watermark_us == INFINITY else round((now_us - watermark_us) / SECOND_US, 1)


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
