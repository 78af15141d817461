"""
Each query over Kafka: raw topics -> ``tidegate ingest`` -> ordered topics -> ``tidegate query`` -> result topic, every row judged.

Flink SQL runs the benchmark's own statements on the same raw topics in the same run, where it is installed. CPU seconds per million
events are those of whole runs, the last window included, without those of a start, which is measured over few events for each engine.
Tidegate's are those of both hops; a topic that is in order serves many queries, so they are told apart too.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filling import write
from nexmark.generator import KINDS, Made, Piece, pieces
from nexmark.on_files import OnFiles
from nexmark.queries import TIMESTAMP_BY, reads_arrivals, script, texts
from peers.asked import Asked
from peers.installing import Installed, install
from running import Bench, FailedRun, Figures, Run, measured, progress

from ordering.protocol.wire import CTI_HEADER_BYTES
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.writer import Columns
from tidegate.platform.stack.embedded import free_port

HERE = Path(__file__).resolve().parent
SAME = {name: f"round({price}, 3) AS {price}" for name, price in {"q1": "price", "q14": "price"}.items()} | {
    "q4": "trunc(final) AS final",
    "q17": "trunc(avg_price) AS avg_price",
}
"""Columns in which Flink's statement rounds by its types: both sides are compared as rounded."""
_FEW = 200
_REORDER_MS = 5_000


def flink_of(options: argparse.Namespace) -> Installed | None:
    """Return Flink, installed if it is not there yet; None if it is left out."""
    return None if options.no_flink else install("flink", options.peers_home.resolve())


class OnKafka:
    """All queries over the same raw topics."""

    def __init__(self, bench: Bench, made: Made, layout: str, files: OnFiles, options: argparse.Namespace, flink: Installed | None) -> None:
        self._bench, self._made, self._layout, self._files, self._options, self._flink = bench, made, layout, files, options, flink
        self._ordered: dict[tuple[Made, bool], tuple[dict[str, str], Run]] = {}
        self._raw: dict[Made, dict[str, str]] = {}

    def rows(self, names: list[str], has_batch: bool) -> Iterator[Figures]:
        """Yield what each query showed."""
        few, (start, flink_start, batch_start) = Made(_FEW), (0.0, 0.0, None)
        start = _cpu_s(self.answer("q0", few)[0])
        ingest_start = _cpu_s(self._in_order(few, has_arrivals=False)[1])
        if self._flink:
            flink_start = _cpu_s(self._flink_run("q0", few)[0])
        if has_batch:
            batch_start = self._files.batch("q0", Made(50))
        for name in names:
            hop = self._in_order(self._made, has_arrivals=reads_arrivals(name))[1]
            run, results = self.answer(name, self._made)
            found = self._judged(name, results, changes=False)
            row: Figures = {
                "name": name,
                "ingest_cpu_s_per_million": self._per_million(hop, ingest_start),
                "query_cpu_s_per_million": self._per_million(run, start),
                "cpu_s_per_million": round(self._per_million(hop, ingest_start) + self._per_million(run, start), 2),
                "memory_mb": _memory_mb(run),
                **found,
            }
            row |= self._beside(name, flink_start) if self._flink else {}
            if has_batch and batch_start is not None:
                batch = self._files.batch(name, self._made)
                row["duckdb_cpu_s_per_million"] = batch.per_million(batch_start, self._made.events)
            yield row | {"start_cpu_s": {"ingest": ingest_start, "query": start, "flink": flink_start}}

    def _beside(self, name: str, start: float) -> Figures:
        """Return what Flink showed of a query, or why it showed nothing."""
        if name not in texts("flink.sql"):
            return {"flink": "has no such statement"}
        try:
            run, results = self._flink_run(name, self._made)
        except FailedRun as failed:
            return {"flink": f"failed: {failed.reason}"}
        if not run.ended:
            return {"flink": f"did not finish in {self._options.limit:g} s: {run.events:,} events"}
        found = self._judged(name, results, changes=results.read_bytes()[:10] == b'{"before":', same=SAME.get(name))
        cost = {"flink_cpu_s_per_million": self._per_million(run, start), "flink_memory_mb": _memory_mb(run)}
        return cost | {f"flink_{one}": found[one] for one in ("rows", "equal", "missing", "only_here")}

    def _judged(self, name: str, results: Path, **how: Any) -> Figures:
        progress(f"{name}: judging")
        return self._files.judged(name, results, **how)

    def _per_million(self, run: Run, start: float) -> float:
        return round(max(_cpu_s(run) - start, 0) / self._made.events * 1e6, 2)

    def _topics(self, made: Made) -> dict[str, str]:
        """Have the raw topics; return them by input."""
        if made not in self._raw:
            names = ["nexmark"] if self._layout == "one" else list(KINDS)
            bench, partitions = self._bench, self._options.partitions
            topics = {name: bench.fresh(name, partitions) for name in names}
            for place, topic in enumerate(topics.values()):
                records = _sent(made, None if self._layout == "one" else place, partitions)
                write(bench.stack.bootstrap, topic, records, lambda sent: progress(f"sent {sent:,}"))
            self._raw[made] = topics
        return self._raw[made]

    def _configure(self, made: Made, *, has_arrivals: bool, ordered: dict[str, str], results: dict[str, str]) -> None:
        """Write the settings of the next job."""
        reorder_ms = made.bound_ms if made.order == "disordered" else 0
        policies = f'early = "5m"\nlate = "{max(made.bound_ms, _REORDER_MS)}ms"\nreorder = "{reorder_ms}ms"\n'
        timed = "" if has_arrivals else f'timestamp_by = "{TIMESTAMP_BY[self._layout]}"\n{policies}'
        inputs = [
            f'[inputs.{name}]\ntopic = "{topic}"\nordered_topic = "{ordered[name]}"\n{timed}' for name, topic in self._topics(made).items()
        ]
        outputs = [f'[outputs.{name}]\ntopic = "{topic}"\n' for name, topic in results.items()]
        side = f'[references.side_input]\npath = "{self._files.side}"\n'
        (self._bench.work / "tidegate.toml").write_text("\n".join([*inputs, *outputs, side]))

    def _in_order(self, made: Made, *, has_arrivals: bool) -> tuple[dict[str, str], Run]:
        """Have the topics in order, by event time or by arrival; return them by input, and the run that made them."""
        if (made, has_arrivals) not in self._ordered:
            ordered = {name: self._bench.fresh(f"{name}-ordered") for name in self._topics(made)}
            self._configure(made, has_arrivals=has_arrivals, ordered=ordered, results={})
            run = self._bench.job("ingest" + " by arrival" * has_arrivals, made.events, "ingest", *ordered)
            self._ordered[made, has_arrivals] = ordered, run
        return self._ordered[made, has_arrivals]

    def answer(self, name: str, made: Made) -> tuple[Run, Path]:
        """Run a query; return its run, and a file with its results."""
        has_arrivals, results = reads_arrivals(name), self._bench.fresh(name)
        ordered, _ = self._in_order(made, has_arrivals=has_arrivals)
        self._configure(made, has_arrivals=has_arrivals, ordered=ordered, results={name: results})
        (self._bench.work / "query.sql").write_text(script(name, self._layout))
        run = self._bench.job(f"{name} in Tidegate", made.events, "query", "query.sql")
        file = self._bench.work / "results.ndjson"
        _dump(self._bench.stack.bootstrap, results, file)
        self._bench.forget(results)
        return run, file

    def _flink_run(self, name: str, made: Made) -> tuple[Run, Path]:
        """Run a query of the benchmark's in Flink; return its run, and a file with its results."""
        assert self._flink is not None
        bench, file = self._bench, self._bench.work / "results.ndjson"
        sink, scratch = bench.fresh(f"flink-{name}", self._options.partitions), self._flink.scratch / f"flink-{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        job = Asked(
            query=name,
            bootstrap=bench.stack.bootstrap,
            topics=list(self._topics(made).values()),
            sink=sink,
            by_record=False,
            bound_ms=0,
            events=made.events,
            cores=bench.cores,
            jars=[str(jar) for jar in self._flink.jars],
            scratch=str(scratch),
            port=free_port(),
        )
        kept = {one: value for one, value in bench.environment.items() if not one.startswith(("SPARK_", "PYSPARK_", "FLINK_", "PYTHON"))}
        environment = kept | {"JAVA_TOOL_OPTIONS": f"-Xmx{self._options.flink_heap}", "PYTHONPATH": str(HERE.parent / "peers")}
        command = [str(self._flink.python), str(HERE / "flink_queries.py"), job.argument()]
        try:
            run = measured(f"{name} in Flink", command, made.events, bench.work, environment, self._options.limit)
            _dump(bench.stack.bootstrap, sink, file)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            bench.forget(sink)
        return run, file


def _sent(made: Made, kind: int | None, partitions: int) -> Iterator[Columns]:
    """Yield the records of a topic, of one kind or of all; they go to its partitions in turns."""
    place = 0
    for piece in pieces(made):
        of_topic: Piece = piece if kind is None else piece.take(piece.kind == kind)
        payload = (of_topic.nested() if kind is None else of_topic.flat()).cast(pa.binary())
        count = len(payload)
        partition = ((place + np.arange(count)) % partitions).astype(np.int32)
        place += count
        yield Columns(payload, pa.nulls(count, pa.binary()), partition, of_topic.arrival_ms, "", None)


def _dump(bootstrap: str, topic: str, file: Path) -> None:
    """Write the results of a topic to a file, a line each; CTIs, which only Tidegate's have, are none."""
    properties = {"bootstrap.servers": bootstrap}
    admin = Admin(properties)
    places = [(topic, partition) for partition in range(admin.require(topic).partitions)]
    starts, ends = admin.starts(places), admin.ends(places)
    with file.open("wb") as lines:
        for place in places:
            for records in RangeReader(properties, *place, headers=True).read(starts[place], ends[place]):
                assert records.header is not None
                is_cti = pc.fill_null(pc.equal(pc.binary_length(records.header), CTI_HEADER_BYTES), False)
                for value in records.value.filter(pc.invert(is_cti)):
                    lines.write(value.as_py() + b"\n")


def _cpu_s(run: Run) -> float:
    return round(sum(run.meter.cpu_s.values()), 1)


def _memory_mb(run: Run) -> int:
    return sum(run.meter.memory_peak.values()) >> 20
