"""
Tidegate's queries beside those of Flink SQL, Spark's own streaming and Quix Streams: same events, same broker, same cores.

Two ways are measured. *From the ordered topic*: Tidegate reads it; peers, which cannot read its numbers and CTIs, read a plain
topic of the same events, each partition sorted by their system timestamps, which are the records' timestamps: more order than
Tidegate is given. *The whole way*: peers read the raw topic in one job, its field ``ts`` with a bound of 2 s; Tidegate's
figure is that of both hops, one after the other. The join reads two topics of half as many events.

Whatever a peer writes into its result topic is compared with Tidegate's results: peers drop what comes too late, Tidegate
moves it, so **the rate of a row is for the results that the row tells**. A run that is not done in time is ended, and its row
says how far it was; it is not run again. Engines take turns within each of the runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from filling import happened_until
from peers.asked import Asked
from peers.comparing import FOUND, closed_until, compare, gather
from peers.installing import PEERS, Installed, default_home, install
from running import Bench, FailedRun, Figures, Run, console, measured, middle

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.writer import Columns, GaplessProducer
from tidegate.platform.stack.embedded import free_port

QUERIES = {
    "tumbling 10 s count and sum by key": "tumbling",
    "hopping 60 s by 1 s count by key": "hopping",
    "interval join within 2 s": "join",
    "LAG by key": "lag",
}
"""Queries by the names of their figures, as peers are asked for them."""
BOUND_MS = 2_000
"""So far out of order events are for peers: what ``reorder`` is in the settings of the bench."""
ORDERED, WHOLE = "(ordered topic)", "(the whole way)"
_PIECE = 100_000
_RATE, _COST = "steady_events_per_s", "steady_cpu_s_per_million"


@dataclass
class Topics:
    """What a query reads, one of each a side: raw, ordered, and the ordered one's events as plain records."""

    raw: list[str] = field(default_factory=list)
    ordered: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this part."""
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument(
        "--peer-queries", type=lambda text: text.split(","), default=list(QUERIES.values()), help=f"of {', '.join(QUERIES.values())}"
    )
    parser.add_argument("--peer-limit", type=float, default=900.0, help="seconds after which a run of a peer is ended (default 900)")
    parser.add_argument("--peers-home", type=Path, default=default_home(), help="where peers are installed (default: the user's cache)")


def figures(bench: Bench, options: argparse.Namespace, scripts: dict[str, str]) -> Iterator[tuple[str, list[Figures]]]:
    """Yield the rows of each query as they are known; *scripts* are Tidegate's queries by the names of their figures."""
    peers = [install(name, options.peers_home.resolve()) for name in options.peers]
    asked = {title: query for title, query in QUERIES.items() if query in options.peer_queries}
    events, hops = options.query_events, []
    topics = Topics([bench.filled(events, options.partitions)])
    for number in range(1, options.runs + 1):
        run, ordered = bench.ingest(f"tidegate ingest, run {number}", topics.raw[0], events)
        hops.append(run.figures())
        if number < options.runs:
            bench.forget(ordered)
    topics.ordered.append(ordered)
    hop = middle(hops)
    yield "raw to ordered", [hop]
    for title, query in asked.items():
        if query == "join":
            continue
        if not topics.plain:
            topics.plain.append(plain(bench, topics.ordered[0], options.partitions))
        yield title, Beside(bench, options, peers, title, query, topics, hop).rows(scripts[title])
    bench.forget(*topics.ordered, *topics.plain)
    for title, query in asked.items():
        if query == "join":
            sides = joined(bench, options)
            yield title, Beside(bench, options, peers, title, query, sides, hop).rows(scripts[title])
            bench.forget(*sides.ordered, *sides.plain)


def joined(bench: Bench, options: argparse.Namespace) -> Topics:
    """Return the topics of the join."""
    topics, half = Topics(), options.query_events // 2
    for seed, side in enumerate(("bench", "right"), start=1):
        topics.raw.append(bench.filled(half, options.partitions, seed))
        topics.ordered.append(bench.ingest(f"ingest for the join: {side}", topics.raw[-1], half, side)[1])
        topics.plain.append(plain(bench, topics.ordered[-1], options.partitions))
    return topics


def plain(bench: Bench, ordered: str, partitions: int) -> str:
    """Return a topic with the events of an ordered one, sorted by system timestamp in each partition, without headers and CTIs."""
    properties, topic = {"bootstrap.servers": bench.stack.bootstrap}, bench.fresh("plain", partitions)
    producer = GaplessProducer(properties)
    ends = Admin(properties).ends([(ordered, partition) for partition in range(partitions)])
    for partition in range(partitions):
        pieces = list(RangeReader(properties, ordered, partition).read(0, ends[ordered, partition]))
        keys, values = (
            pa.chunked_array(columns, pa.binary()) for columns in zip(*((piece.key, piece.value) for piece in pieces), strict=True)
        )
        stamps_ms = np.concatenate([piece.timestamp_ms for piece in pieces])
        # A CTI has no key; every event of a topic ordered OVER one has.
        events = np.flatnonzero(keys.is_valid().to_numpy())
        order = events[np.argsort(stamps_ms[events], kind="stable")]
        for start in range(0, len(order), _PIECE):
            rows = order[start : start + _PIECE]
            value, key = (column.take(pa.array(rows)).combine_chunks() for column in (values, keys))
            producer.send_columns(topic, Columns(value, key, np.full(len(rows), partition, np.int32), stamps_ms[rows], "", None))
        producer.flush(topic)
    producer.discard()
    return topic


class Beside:
    """One query: Tidegate and the peers in turns, over the ordered topic and the whole way."""

    def __init__(
        self, bench: Bench, options: argparse.Namespace, peers: list[Installed], title: str, query: str, topics: Topics, hop: Figures
    ) -> None:
        self._bench, self._options, self._peers, self._hop = bench, options, peers, hop
        self._title, self._query, self._topics = title, query, topics
        self._expected = bench.work / "expected.parquet"
        self._expected.unlink(missing_ok=True)
        self._notes: dict[str, str] = {}

    def rows(self, script: str) -> list[Figures]:
        """Run all of it as often as asked; return a row for each engine and way."""
        found: dict[str, list[Figures]] = {}
        for number in range(1, self._options.runs + 1):
            for engine, run in self._runs(script):
                if engine not in self._notes:
                    runs = run(f"{engine}, run {number}")
                    found.setdefault(engine, []).extend(runs)
                    self._say(f"{engine}, run {number}", runs, self._notes.get(engine, ""))
        rows = {engine: _together(engine, runs) for engine, runs in found.items()}
        for engine, note in self._notes.items():
            rows[engine]["note"] = note
        ours = rows[f"tidegate {ORDERED}"]
        rows[f"tidegate {ORDERED}"] = {**ours, "equal": ours["results"]}
        both = self._both_hops(ours)
        return [*(row for row in rows.values() if ORDERED in row["name"]), both, *(row for row in rows.values() if WHOLE in row["name"])]

    def _say(self, name: str, runs: list[Figures], note: str) -> None:
        told = "".join(f" {row[_RATE] or 0:,} events/s, {row[_COST]} CPU s per million, {row.get('results', 0):,} results" for row in runs)
        console.print(f"{self._title}: {name}:{told} {note}".rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _runs(self, script: str) -> Iterator[tuple[str, Callable[[str], list[Figures]]]]:
        yield f"tidegate {ORDERED}", lambda name: self._tidegate(name, script)
        for way in (ORDERED, WHOLE):
            for peer in self._peers:
                engine = f"{peer.name} {way}"
                yield engine, lambda name, peer=peer, way=way, engine=engine: self._peer(name, engine, peer, way)

    def _tidegate(self, name: str, script: str) -> list[Figures]:
        bench, results = self._bench, self._bench.fresh("results")
        (bench.work / "query.sql").write_text(script)
        sides = zip(("bench", "right"), self._topics.ordered, strict=False)
        set_ = [f"outputs.results.topic={results}", *(f"inputs.{side}.ordered_topic={topic}" for side, topic in sides)]
        run = bench.job(
            f"{self._title}: {name}", self._options.query_events, "query", "query.sql", *[part for one in set_ for part in ("--set", one)]
        )
        if not self._expected.exists():
            partitions = Admin({"bootstrap.servers": bench.stack.bootstrap}).require(results).partitions
            gather(bench.stack.bootstrap, results, partitions, self._query, self._expected)
        bench.forget(results)
        return [{**_row(run), "results": run.last["results"]}]

    def _peer(self, name: str, engine: str, peer: Installed, way: str) -> list[Figures]:
        bench, options = self._bench, self._options
        sink, scratch = bench.fresh(f"results-{peer.name}", options.partitions), peer.scratch / f"{peer.name}-{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        job = Asked(
            query=self._query,
            bootstrap=bench.stack.bootstrap,
            topics=self._topics.plain if way == ORDERED else self._topics.raw,
            sink=sink,
            by_record=way == ORDERED,
            bound_ms=BOUND_MS,
            events=options.query_events,
            cores=bench.cores,
            jars=[str(jar) for jar in peer.jars],
            scratch=str(scratch),
            port=free_port(),
        )
        environment = {name: value for name, value in bench.environment.items() if not name.startswith(("SPARK_", "PYSPARK_", "FLINK_"))}
        environment |= {"JAVA_TOOL_OPTIONS": "-Xmx2g"} if peer.name == "flink" else {}
        command = [str(peer.python), str(peer.program), job.argument()]
        try:
            run = measured(f"{self._title}: {name}", command, options.query_events, bench.work, environment, options.peer_limit)
            if not run.ended:
                self._notes[engine] = f"did not finish in {options.peer_limit:g} s: {run.events:,} of {options.query_events:,} events"
            return [{**_row(run), **(self._compared(sink, way) if run.ended else {})}]
        except FailedRun as failed:
            self._notes[engine] = f"failed: {failed.reason}"
            return []
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            # Quix keeps its state in topics named after its results, too.
            topics = Admin({"bootstrap.servers": bench.stack.bootstrap}).partition_counts()
            bench.forget(*(topic for topic in topics if sink in topic))

    def _compared(self, sink: str, way: str) -> Figures:
        found, events = self._bench.work / "found.parquet", self._options.query_events
        results = gather(self._bench.stack.bootstrap, sink, self._options.partitions, self._query, found)
        closed_ms = closed_until(events)
        due = happened_until(closed_ms, events) if way == WHOLE else None
        counts = compare(self._query, self._expected, found, closed_ms, self._bench.work / "spill", due)
        found.unlink()
        return {"results": results, **counts}

    def _both_hops(self, query: Figures) -> Figures:
        """Return what both hops cost one after the other: their times and their CPU seconds add up."""
        row: Figures = {"name": f"tidegate {WHOLE}", "results": query["results"], "equal": query["results"]}
        if query[_RATE] and self._hop[_RATE]:
            row[_RATE] = round(1 / (1 / query[_RATE] + 1 / self._hop[_RATE]))
            pairs = zip(query[f"{_RATE}_spread"], self._hop[f"{_RATE}_spread"], strict=True)
            row[f"{_RATE}_spread"] = [round(1 / (1 / one + 1 / other)) for one, other in pairs]
            row[_COST] = round(query[_COST] + self._hop[_COST], 2)
            pairs = zip(query[f"{_COST}_spread"], self._hop[f"{_COST}_spread"], strict=True)
            row[f"{_COST}_spread"] = [round(one + other, 2) for one, other in pairs]
        row["whole_cpu_s_per_million"] = round(query["whole_cpu_s_per_million"] + self._hop["whole_cpu_s_per_million"], 2)
        row["memory_peak_mb"] = max(query["memory_peak_mb"], self._hop["memory_peak_mb"])
        return row


def _together(engine: str, runs: list[Figures]) -> Figures:
    """Return the row of several runs; what was found is told from the least to the most where it differed."""
    row = {**(middle(runs) if runs else {}), "name": engine}
    for name in ("results", *FOUND):
        counts = sorted({run[name] for run in runs if name in run})
        if len(counts) > 1:
            row[name] = [counts[0], counts[-1]]
    return row


def _row(run: Run) -> Figures:
    return {name: value for name, value in run.figures().items() if not isinstance(value, dict)}
