"""
Chains of stages under fire: ``make faults ONLY=chains``, or ``python tests/faults/run.py --only chains --rounds 50 --seed 7``.

A round is one ingest job for two inputs and three queries that read one another, all of them live while records come in. The second query
joins results with raw input, and feeds Parquet files, a plain topic and a PostgreSQL table. Stages are killed, alone or all at once,
the servers too, and checkpoints are lost. Then a *quiet replay* computes everything again from the same raw topics and the same
journal, one stage after the other, undisturbed, with other batches.

Law, level 1: both ordered topics have the same events, byte for byte. Law, level 3: so do all result topics, in the whole where
no stage advances by substreams, else substream by substream; and files, plain topic and table hold the same rows.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from faults.kills import DRIVER, JVM, PLANNER, SESSION, WORKER, slain
from faults.lives import Lives
from support.law_breaches import demand
from support.postgres_server import PostgresServer
from support.stack.drawn_logs import Raw
from support.stack.jobs import Job, Workspace, settings_of
from support.stack.topics import (
    ANY_TIME,
    APPEND_TIME,
    Event,
    Ordered,
    check_promises,
    create,
    exists,
    fresh,
    header,
    produce,
    read_ordered,
    records,
)

from ordering.ticks import INFINITY
from tidegate.basics.fault_points import POINTS
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

ORIGIN_BITS = 40
"""In the offset of a result of a query with OVER the input partition stands above so many bits (PROTOCOL.md)."""
END_S, FAILS_MAX = 420.0, 4
HOLD_S, HOLD_ALONE_S = 40.0, 150.0
"""Patience with a life that is to hold itself still at a point; one with a JVM of its own takes longer to come to its first batch."""
AGAIN_S = 20.0
"""A life that is to hold itself still at a later pass is given further records so often, lest one batch has taken all."""
PIECE = 160
"""Records of the orders that come between two strikes."""
KEYS = ("a", "b", "cc", "Zürich", "d,e", "")
COLUMNS = ("at", "k", "v", "w")
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "k", "type": "string"},
        {"name": "v", "type": ["null", "long"]},
        {"name": "w", "type": "long"},
    ],
}
EVERYTHING, SERVERS, CHECKPOINT, MISSED = "all stages", "broker and Redis", "checkpoint", "missed"


@dataclass(frozen=True, slots=True)
class Shape:
    """
    What a chain is made of.

    Attributes:
        payloads: Format of the orders: json, csv or avro.
        arrival: Who stamps records: ``created`` the producer, ``appended`` the broker, ``stamped`` ingest.
        partitions: Of the raw orders.
        over: Whether orders are put in order by substreams, and the first query advances by them.
        second_over, third_over: Whether the second and the third query do; none does that reads one that does not.
        imports: Whether the time of the orders drives that of the slow rates.
    """

    payloads: str
    arrival: str
    partitions: int
    over: bool
    second_over: bool
    third_over: bool
    imports: bool

    @property
    def over_by_output(self) -> dict[str, bool]:
        """Whether what an output's topic holds is in the order of time of each substream alone: what it reads may be so too."""
        return {
            "totals": self.over,
            "changes": self.over,
            "joined": self.second_over,
            "moved": self.second_over,
            "last": self.third_over,
            "seen": self.third_over,
        }

    def __str__(self) -> str:
        stages = "".join("OVER " if over else "line " for over in (self.over, self.second_over, self.third_over))
        return f"{self.payloads}, {self.arrival}, {self.partitions} partitions, {stages.strip()}{', imports' * self.imports}"


def draw_shape(dice: random.Random) -> Shape:
    """Draw a chain."""
    over = dice.random() < 0.7
    second_over = over and dice.random() < 0.6
    return Shape(
        payloads=dice.choice(("json", "csv", "avro")),
        arrival=dice.choice(("created", "created", "appended", "stamped")),
        partitions=dice.choice((1, 2, 3)),
        over=over,
        second_over=second_over,
        third_over=second_over and dice.random() < 0.5,
        imports=dice.random() < 0.5,
    )


# ----- what the stages are told


def first_script(shape: Shape) -> str:
    """Return a query over raw input with two outputs."""
    over = " OVER k" if shape.over else ""
    return f"""
WITH heard AS (SELECT k, v, w FROM orders TIMESTAMP BY at{over})
SELECT k, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS mean INTO totals FROM heard GROUP BY k, TumblingWindow(millisecond, 400);
SELECT k, v, v - LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS step INTO changes FROM heard WHERE w = 1
"""


def second_script(shape: Shape) -> str:
    """Return a query that joins results with raw input, and counts others."""
    if shape.second_over:
        return """
CREATE TABLE totals (k nvarchar(max), n bigint, s bigint);
SELECT o.k AS k, o.v AS v, t.n AS n, t.s AS s INTO joined
FROM orders TIMESTAMP BY at OVER k o
JOIN totals TIMESTAMP BY System.Timestamp() OVER k t ON o.k = t.k AND DATEDIFF(millisecond, o, t) BETWEEN 0 AND 700;
SELECT k, SUM(step) AS moved, COUNT(*) AS n INTO moved
FROM changes TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, HoppingWindow(millisecond, 600, 300)
"""
    return """
SELECT t.k AS k, t.n AS n, t.s AS s, r.rate AS v INTO joined
FROM totals t LEFT JOIN rates TIMESTAMP BY at r ON t.k = r.k AND DATEDIFF(millisecond, r, t) BETWEEN 0 AND 3000;
SELECT k, SUM(step) AS moved, COUNT(*) AS n INTO moved FROM changes GROUP BY k, HoppingWindow(millisecond, 600, 300)
"""


def third_script(shape: Shape) -> str:
    """Return a query over joined results; in one line it sees in which order those of one instant come."""
    if shape.third_over:
        return """
SELECT k, COUNT(*) AS c, COLLECT(v) AS vs INTO last
FROM joined TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, SessionWindow(millisecond, 300, 1500);
SELECT k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 4)) AS before INTO seen
FROM joined TIMESTAMP BY System.Timestamp() OVER k
"""
    return """
SELECT COUNT(*) AS c, COLLECT(v) AS vs, TopOne() OVER (ORDER BY n DESC) AS top INTO last
FROM joined GROUP BY TumblingWindow(second, 1);
SELECT k, v, LAG(k) OVER (LIMIT DURATION(second, 4)) AS before, ISFIRST(millisecond, 500) AS first INTO seen FROM joined
"""


OUTPUTS = {"first": ("totals", "changes"), "second": ("joined", "moved"), "third": ("last", "seen")}
_SCRIPTS = {"first": first_script, "second": second_script, "third": third_script}


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where one computation of the chain writes.

    Attributes:
        folder: Of its configuration, files and checkpoints.
        prefix: Of the names of its topics.
        table: The table of its store.
    """

    folder: Path
    prefix: str
    table: str

    def ordered(self, name: str) -> str:
        """Return the ordered topic of an input."""
        return f"{self.prefix}.{name}.ordered"

    def topic(self, output: str) -> str:
        """Return the topic of an output."""
        return f"{self.prefix}.{output}"

    @property
    def files(self) -> Path:
        """Where the result files are."""
        return self.folder / "out"

    @property
    def plain(self) -> str:
        """The plain topic."""
        return f"{self.prefix}.plain"


class ChainTables:
    """The configuration of a chain, once for the live one and once for its replay."""

    def __init__(self, shape: Shape, orders: str, rates: str, url: str, folder: Path) -> None:
        self._shape, self._orders, self._rates, self._url = shape, orders, rates, url
        self._schema = folder / "order.avsc"
        folder.mkdir(parents=True, exist_ok=True)
        self._schema.write_text(json.dumps(AVRO))

    def text(self, place: Place, live: Place) -> str:
        """Return the tables of the computation at *place*; imported CTIs are those that the *live* chain has seen."""
        shape = self._shape
        driver = "orders" if place == live else "driver"
        tables = [
            self._input("orders", place.ordered("orders"), over=shape.over),
            self._rates_table(place.ordered("rates"), driver),
            *([] if place == live else [self._input("driver", live.ordered("orders"), over=shape.over)]),
        ]
        for output in shape.over_by_output:
            tables.append(f'[outputs.{output}]\ntopic = "{place.topic(output)}"')
            if output == "joined":
                tables[-1] += (
                    f'\nfiles = "{place.files}"\nfile_format = "parquet"\nfile_span = "2s"\nplain_topic = "{place.plain}"'
                    f'\nquery = "second.sql"\nsink_in_job = true\n\n[outputs.joined.postgres]\nurl = "{self._url}"\ntable = "{place.table}"'
                    '\nbatch_rows = 50\nflush_interval = "100ms"'
                )
        return "\n\n".join(tables) + "\n"

    def _input(self, name: str, ordered: str, *, over: bool) -> str:
        shape = self._shape
        lines = [f"[inputs.{name}]", f'topic = "{self._orders}"', f'ordered_topic = "{ordered}"', 'timestamp_by = "at"']
        lines += [f'format = "{shape.payloads}"'] if shape.payloads != "json" else []
        lines += [f"csv_columns = {json.dumps(COLUMNS)}"] if shape.payloads == "csv" else []
        lines += [f'avro_schema = "{self._schema}"'] if shape.payloads == "avro" else []
        lines += ['over = "k"'] if over else []
        lines += ['arrival = "ingest"'] if shape.arrival == "stamped" else []
        lines += ['early = "2s"', 'late = "1s"', 'reorder = "150ms"', 'idle_cadence = "300ms"', 'idle_margin = "200ms"']
        return "\n".join([*lines, 'fields = { k = "nvarchar(max)", v = "bigint", w = "bigint" }'])

    def _rates_table(self, ordered: str, driver: str) -> str:
        lines = ["[inputs.rates]", f'topic = "{self._rates}"', f'ordered_topic = "{ordered}"', 'timestamp_by = "at"', 'late = "10s"']
        lines += [f'import_ctis_from = "{driver}"'] if self._shape.imports else []
        return "\n".join([*lines, 'idle_cadence = "300ms"', 'fields = { k = "nvarchar(max)", rate = "bigint" }'])


# ----- what comes in


class Orders:
    """The producer: orders with disorder, unreadable ones among them, and now and then a rate."""

    def __init__(self, bootstrap: str, shape: Shape, dice: random.Random) -> None:
        self._bootstrap, self._shape, self._dice = bootstrap, shape, dice
        stamps = ANY_TIME if shape.arrival == "created" else APPEND_TIME
        self.orders = create(bootstrap, fresh("orders"), shape.partitions, stamps)
        self.rates = create(bootstrap, fresh("rates"), 1, stamps)
        self._schema = fastavro.parse_schema(AVRO)
        self._now_us = time.time_ns() // 1000

    def produce(self, count: int) -> None:
        """Produce the next orders, each some ten milliseconds after the one before, and the rates of that time."""
        if self._shape.arrival != "created":
            self._now_us = time.time_ns() // 1000
        orders, rates = [], []
        for _ in range(count):
            self._now_us += self._dice.choice((0, 1_000, 15_000, 40_000))
            orders.append(self._order())
            if self._dice.random() < 0.05:
                rates.append(self._rate())
        produce(self._bootstrap, self.rates, rates)
        produce(self._bootstrap, self.orders, orders)

    def _order(self) -> Raw:
        dice = self._dice
        late_us = dice.choice((0, 10_000, 100_000, 100_000, 400_000, 1_500_000, -50_000, -3_000_000))
        fields = {"at": self._now_us - late_us, "k": dice.choice(KEYS), "v": dice.choice((None, *range(-3, 9))), "w": dice.randint(0, 1)}
        value = b"\xff{" if dice.random() < 0.01 else self._encoded(fields)
        return Raw(dice.randrange(self._shape.partitions), None, value, self._now_us // 1000)

    def _encoded(self, fields: dict[str, Any]) -> bytes:
        if self._shape.payloads == "csv":
            return ",".join("" if value is None else f'"{value}"' if name == "k" else str(value) for name, value in fields.items()).encode()
        if self._shape.payloads == "avro":
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._schema, fields)
            return out.getvalue()
        return json.dumps(fields, ensure_ascii=False).encode()

    def _rate(self) -> Raw:
        fields = {"at": self._now_us - self._dice.choice((0, 200_000)), "k": self._dice.choice(KEYS), "rate": self._dice.randint(1, 99)}
        return Raw(0, None, json.dumps(fields).encode(), self._now_us // 1000)


# ----- the stages


class StageLives(Lives):
    """
    One stage of a chain and its lives, each with a limit of its batches of its own.

    Args:
        name: ``ingest``, or the name of a script.
        command: What starts it.
        checkpoint: The name of its checkpoint's folder.
        limit: The setting that limits a batch.
        alone: Whether each life has a JVM of its own.
    """

    def __init__(
        self,
        stack: EmbeddedStack,
        space: Workspace,
        name: str,
        command: Sequence[str],
        checkpoint: str,
        limit: str,
        dice: random.Random,
        alone: bool,
    ) -> None:
        super().__init__(stack, space)
        self.name = name
        self._command, self._checkpoint, self._limit, self._dice, self._alone = tuple(command), checkpoint, limit, dice, alone
        self._flags: tuple[str, ...] = ()

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.space.folder / ".tidegate" / "checkpoints" / self._checkpoint

    def _begin(self, environment: dict[str, str]) -> Job:
        limits = settings_of(**{self._limit: self._dice.choice((20, 60, 100_000))})
        start = self.space.start
        if self._alone:
            start, cores = self.space.start_alone, self._dice.choice((1, 2, 4))
            limits += settings_of(spark__master=f"local[{cores},{self._dice.choice((1, 4))}]")
        return start(*self._command, *self._flags, *limits, **environment)

    def lose_checkpoint(self) -> None:
        """Kill the job and delete what it would resume from."""
        slain(self, SESSION)
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def begin_last_life(self) -> None:
        """Stop the job, and start it again with the flag that has it end with its input."""
        self._flags = ("--until-end",)
        if self.job.running:
            # A fault may have ended it in the meantime.
            with suppress(AssertionError):
                self.job.stop()
        self.start()

    def finish(self, deadline_s: float) -> None:
        """Wait until the job has ended by itself with all it had to do, starting it again where a fault has ended it."""
        fails = 0
        while self.job.running or self.job.wait() != 0 or not self.job.last.get("finished"):
            if not self.job.running:
                fails += 1
                demand(fails < FAILS_MAX, "no stall", f"{self.name} fails again and again: {self.job.last} {self.job.errors[-2500:]}")
                self.revive()
            demand(time.monotonic() < deadline_s, "no stall", f"{self.name} does not end: {self.job.last} {self.job.errors[-2500:]}")
            time.sleep(0.2)


@dataclass(slots=True)
class ChainOutcome:
    """What came of a round."""

    seed: int
    shape: Shape
    kills: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    lives: int = 0
    compared: int = 0
    written_twice: int = 0
    rows: int = 0
    dead: int = 0
    broken: str = ""


class Chain:
    """
    One round.

    Args:
        stack: Kafka and Redis, which may be killed.
        postgres: Where the store is.
        folder: The round's own.
        seed: Of everything that is drawn.
        shape: What it is made of; default: drawn.
        alone: Whether each life of a stage has a JVM of its own, which may be killed.
    """

    def __init__(
        self, stack: EmbeddedStack, postgres: PostgresServer, folder: Path, seed: int, *, shape: Shape | None = None, alone: bool = True
    ) -> None:
        self.stack, self.dice, self._alone = stack, random.Random(seed), alone
        self.outcome = ChainOutcome(seed, shape or draw_shape(self.dice))
        shape = self.outcome.shape
        self._raw = Orders(stack.bootstrap, shape, self.dice)
        name = fresh("chain").replace("-", "_")
        self.live, self.quiet = (Place(folder / part, f"{name}.{part}", f"{name}.{part}") for part in ("live", "quiet"))
        self._url = postgres.url()
        tables = ChainTables(shape, self._raw.orders, self._raw.rates, self._url, folder)
        self.spaces = {place: Workspace(place.folder, stack, tables.text(place, self.live)) for place in (self.live, self.quiet)}
        for space in self.spaces.values():
            for stage, script in _SCRIPTS.items():
                space.script(f"{stage}.sql", script(shape))
        self.stages = [self._ingest(), *(self._query(stage) for stage in OUTPUTS)]

    def _ingest(self) -> StageLives:
        folder = f"ingest-{self.live.ordered('orders')}"
        command = ("ingest", "orders", "rates")
        limit = "inputs__orders__max_events_per_batch"
        return StageLives(self.stack, self.spaces[self.live], "ingest", command, folder, limit, self.dice, self._alone)

    def _query(self, stage: str) -> StageLives:
        folder = f"query-{self.live.topic(OUTPUTS[stage][0])}"
        command = ("query", f"{stage}.sql", "--start", "last-stopped")
        limit = "query__max_events_per_batch"
        return StageLives(self.stack, self.spaces[self.live], stage, command, folder, limit, self.dice, self._alone)

    def play(self, strikes: int, tell: Callable[[str], None]) -> None:
        """Play it: bring records in and strike, so many times; let all stages end, and compare with a quiet replay."""
        try:
            self._begin()
            for strike in (*self._draw_strikes(strikes),):
                self._raw.produce(PIECE)
                time.sleep(self.dice.uniform(0.2, 2.0))
                tell(strike())
                for stage in self.stages:
                    stage.revive()
            self._raw.produce(PIECE)
            self.stages[0].begin_last_life()
            deadline_s = time.monotonic() + END_S
            for stage in self.stages:
                stage.finish(deadline_s)
        finally:
            for stage in self.stages:
                stage.close()
                self.outcome.kills.update(stage.kills)
                self.outcome.ended += stage.ended
                self.outcome.lives += stage.lives
        self._replay()
        self._compare()
        tell(f"{self.outcome.compared:,} events and results equal, {self.outcome.written_twice:,} of them written twice")

    def _begin(self) -> None:
        """Start the stages in the order of their data: each once the topics that it reads are there."""
        self._raw.produce(PIECE)
        made = {
            "ingest": [self.live.ordered("orders"), self.live.ordered("rates")],
            **{stage: [self.live.topic(output) for output in outputs] for stage, outputs in OUTPUTS.items()},
        }
        for stage in self.stages:
            stage.start()
            stage.job.until(lambda stage=stage: all(exists(self.stack.bootstrap, topic) for topic in made[stage.name]), "its topics")

    def _draw_strikes(self, count: int) -> Iterable[Callable[[], str]]:
        """Draw strikes, the kinds one after the other so that few of them have all."""
        kinds = [self._kill_one, self._kill_at_point, self._kill_at_point, self._kill_servers, self._lose_checkpoint, self._kill_everything]
        kinds += [self._kill_jvm] if self._alone else []
        self.dice.shuffle(kinds)
        return (kinds[number % len(kinds)] for number in range(count))

    def _kill_one(self) -> str:
        """Kill a stage, or a process of it."""
        stage = self.dice.choice(self.stages)
        victim = self.dice.choice((SESSION, SESSION, DRIVER, JVM, WORKER, PLANNER) if self._alone else (SESSION, SESSION, WORKER))
        slain(stage, victim)
        return self._struck(f"{victim} of {stage.name}")

    def _kill_jvm(self) -> str:
        """Kill the JVM of a stage alone: its driver and its workers outlive it for a while."""
        stage = self.dice.choice(self.stages)
        slain(stage, JVM)
        return self._struck(f"{JVM} of {stage.name}")

    def _kill_at_point(self) -> str:
        """
        Kill a stage with part of a batch written: before or after its results, or before its state is saved.

        Of a stage with a JVM of its own it may be the JVM alone; the worker that was held then goes on with its task.
        """
        stage, point = self.dice.choice(self.stages), self.dice.choice(POINTS)
        victim = self.dice.choice((SESSION, JVM)) if self._alone else SESSION
        if stage.job.running:
            slain(stage, SESSION)
        stage.arm = (point, self.dice.randint(1, 3))
        stage.start()
        deadline_s = time.monotonic() + (HOLD_ALONE_S if self._alone else HOLD_S)
        held = None
        while held is None and stage.job.running and time.monotonic() < deadline_s:
            self._raw.produce(PIECE)
            held = stage.until_held(AGAIN_S)
        slain(stage, victim, held)
        stage.arm = None
        return self._struck(f"{victim} at {point} of {stage.name}" if held is not None else MISSED)

    def _kill_everything(self) -> str:
        """Kill all stages, and the servers too."""
        for stage in self.stages:
            slain(stage, SESSION)
        self._restart_servers()
        return self._struck(EVERYTHING)

    def _kill_servers(self) -> str:
        """Kill the broker and Redis at once, while all stages go on."""
        self._restart_servers()
        return self._struck(SERVERS)

    def _restart_servers(self) -> None:
        self.outcome.kills.update(("broker", "redis"))
        self.stack.stop_kafka(grace_s=0)
        self.stack.stop_redis(grace_s=0)
        self.stack.start_redis()
        self.stack.start_kafka()

    def _lose_checkpoint(self) -> str:
        """A stage is killed and its checkpoint is gone: it continues after its last CTIs."""
        stage = self.dice.choice(self.stages)
        stage.lose_checkpoint()
        return self._struck(f"{CHECKPOINT} of {stage.name}")

    def _struck(self, what: str) -> str:
        self.outcome.struck[what] += 1
        return what

    def _replay(self) -> None:
        """Compute everything again, one stage after the other, in single batches."""
        space = self.spaces[self.quiet]
        try:
            space.start("ingest", "orders", "rates", "--until-end").finish()
            for stage in OUTPUTS:
                space.start("query", f"{stage}.sql").finish()
        finally:
            space.clear()

    # ----- the law

    def _compare(self) -> None:
        for name in ("orders", "rates"):
            one, other = (self._read(place.ordered(name)) for place in (self.live, self.quiet))
            demand(one.events == other.events, "level 1", f"{name}: {_first_apart(one.events, other.events)}")
            self._count(one)
        for output, over in self.outcome.shape.over_by_output.items():
            one, other = (self._read(place.topic(output)) for place in (self.live, self.quiet))
            mine, theirs = (by_substream(found) if over else in_one_line(found) for found in (one, other))
            demand(mine == theirs, "level 3", f"{output}: {_first_apart(mine, theirs)}")
            demand({one.c(channel) for channel in one.ctis} == {INFINITY}, "the end is told", output)
            self._count(one)
        self._compare_copies()
        for topic in (f"{self.live.ordered('orders')}.dead", f"{self.live.topic('totals')}.dead", f"{self.live.topic('joined')}.dead"):
            again = topic.replace(self.live.prefix, self.quiet.prefix)
            dead, must = self._dead_letters(topic), self._dead_letters(again)
            demand(dead == must, "dead letters", f"{topic}: {sorted(dead ^ must)[:3]}")
            self.outcome.dead += len(dead)

    def _compare_copies(self) -> None:
        """Files, plain topic and table hold what the topic of the second query's first output holds."""
        files = [rows_of_files(place.files) for place in (self.live, self.quiet)]
        demand(files[0] == files[1], "files", f"{_first_apart(files[0], files[1])}")
        plain = [self._plain(place.plain) for place in (self.live, self.quiet)]
        demand(plain[0] == plain[1], "plain topic", f"{_first_apart(plain[0], plain[1])}")
        tables = [self._table(place.table) for place in (self.live, self.quiet)]
        demand(tables[0] == tables[1], "table", f"{tables[0] - tables[1]} {tables[1] - tables[0]}")
        results = sum(map(len, self._read(self.live.topic("joined")).events.values()))
        counts = sum(map(len, files[0].values())), sum(map(len, plain[0].values())), tables[0].total()
        demand(
            counts == (results, results, results), "nothing is lost", f"{results} results, and rows of files, plain topic, table: {counts}"
        )
        self.outcome.rows += sum(counts)

    def _read(self, topic: str) -> Ordered:
        found = read_ordered(self.stack.bootstrap, topic, Admin({"bootstrap.servers": self.stack.bootstrap}).require(topic).partitions)
        check_promises(found, killed=True)
        return found

    def _count(self, found: Ordered) -> None:
        self.outcome.compared += len(found.all_events())
        self.outcome.written_twice += found.duplicates

    def _dead_letters(self, topic: str) -> set[tuple[bytes, str, str, str]]:
        if not exists(self.stack.bootstrap, topic):
            return set()
        return {
            (message.value() or b"", *(header(message, name).decode() for name in ("partition", "offset", "reason")))
            for message in records(self.stack.bootstrap, topic)
        }

    def _plain(self, topic: str) -> dict[tuple[int, bytes], list[tuple[bytes, int]]]:
        """Return what a consumer sees that reads what is committed: the values of each key in their order."""
        found: dict[tuple[int, bytes], list[tuple[bytes, int]]] = defaultdict(list)
        settings = {"group.id": fresh("looker"), "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.stack.bootstrap, **settings})
        for partition in range(Admin({"bootstrap.servers": self.stack.bootstrap}).require(topic).partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                found[partition, message.key() or b""].append((message.value() or b"", message.timestamp()[1]))
        consumer.close()
        return dict(found)

    def _table(self, table: str) -> Counter[tuple[Any, ...]]:
        with psycopg.connect(self._url) as connection:
            # Which result of its topic a row is differs between two chains with OVER.
            rows = connection.execute(f"SELECT k, n, s, v FROM {table}".encode()).fetchall()
        return Counter(rows)


def in_one_line(found: Ordered) -> dict[object, list[tuple[object, ...]]]:
    """Return the results of each partition in their order."""
    return {channel: [_result(event) for event in events] for channel, events in found.events.items() if events}


def by_substream(found: Ordered) -> dict[object, list[tuple[object, ...]]]:
    """Return the results of each (partition, key, input partition) in their order."""
    rows: dict[object, list[tuple[object, ...]]] = defaultdict(list)
    for channel, events in found.events.items():
        for event in events:
            rows[channel, event.key, event.offset >> ORIGIN_BITS].append(_result(event))
    return dict(rows)


def _result(event: Event) -> tuple[object, ...]:
    return event.system_us, event.key, event.value, event.stamp_ms


def rows_of_files(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each file, by its place in the folder, without the number that each had in its topic."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for file in sorted(folder.rglob("*.parquet")):
        table: pa.Table = pq.read_table(file)
        rows = table.select(["k", "n", "s", "v"]).to_pylist()
        found[str(file.relative_to(folder))] = sorted((tuple(row.values()) for row in rows), key=repr)
    return found


def _first_apart(one: Any, other: Any) -> str:
    """Say where two things by name are not the same."""
    if set(one) != set(other):
        return f"only here: {sorted(map(str, set(one) - set(other)))[:3]}, only there: {sorted(map(str, set(other) - set(one)))[:3]}"
    for name in one:
        for place, (left, right) in enumerate(zip(one[name], other[name], strict=False)):
            if left != right:
                return f"{name} at {place}: {left}, not {right}"
        if len(one[name]) != len(other[name]):
            return f"{name}: {len(one[name])}, not {len(other[name])}"
    return "nothing"


def play_chain(
    stack: EmbeddedStack,
    postgres: PostgresServer,
    folder: Path,
    seed: int,
    *,
    strikes: int = 6,
    shape: Shape | None = None,
    alone: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> ChainOutcome:
    """Play one round; a broken law ends it and is told by what is returned."""
    made = Chain(stack, postgres, folder, seed, shape=shape, alone=alone)
    try:
        made.play(strikes, tell)
    except Exception as error:
        # Whatever a round brings to light, in the product or in the campaign, is told; the other rounds are played.
        made.outcome.broken = f"{type(error).__name__}: {error}"
    return made.outcome
