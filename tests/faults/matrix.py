"""
The invariance matrix: the same raw topics ordered again and again, each time cut and spread in another way.

Law, level 1: trigger, batch limit, cores, tasks, a cluster in place of threads, and where a run starts change no event. For 1, 4
and 16 input partitions every run is held against the same oracle's story, so all of them are equal to each other, too.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.checks import first_difference
from faults.cluster import cluster
from support.stack.drawn_logs import Raw, draw, expected, logs_of, story_of
from support.stack.jobs import Workspace, settings_of
from support.stack.topics import Channel, Event, Ordered, check_promises, create, fresh, produce, read_ordered

from ordering.policies import Policies
from ordering.ticks import SECOND_US, format_tick
from tidegate.platform.stack.embedded import EmbeddedStack

PARTITION_COUNTS = (1, 4, 16)
SMALL, LARGE = "small", "large"
_EVENTS = {SMALL: 64, LARGE: 20_000}
PATIENCE_S = 900.0
"""How long one run may take on a machine that has other things to do."""
_ROOT = Path(__file__).resolve().parents[2]
_POLICIES = Policies(early_us=20 * SECOND_US, late_us=30 * SECOND_US, reorder_us=3 * SECOND_US)
_OUTPUTS = 3
_TABLES = """
[spark.conf]
"spark.executor.memory" = "512m"

[inputs.events]
topic = "{topic}"
output_partitions = 3
timestamp_by = "at"
over = "k"
early = "20s"
late = "30s"
reorder = "3s"
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """
    One run.

    Args:
        partitions: Input partitions.
        log: ``small`` or ``large``.
        limit: Most events a batch; 0: the default.
        master: Spark's; ``cluster`` for the standalone one.
        tasks: Shuffle partitions.
        trigger: None: a run to the end; else a running job with that least time between batches, stopped when it has read all.
        start: Whether it starts from a random output start time.
    """

    partitions: int
    log: str = LARGE
    limit: int = 0
    master: str = "local[2]"
    tasks: int = 2
    trigger: str | None = None
    start: bool = False

    def __str__(self) -> str:
        how = f"trigger {self.trigger}" if self.trigger else "to the end"
        limit = f"batches of {self.limit}" if self.limit else "no limit"
        parts = (f"{self.partitions:2} partitions", f"{self.log} log", how, limit, self.master, f"{self.tasks} tasks")
        return ", ".join(parts) + self.start * ", from a time"


CELLS = (
    Cell(1, SMALL, limit=1, master="local[1]", tasks=1),
    Cell(1, master="local[4]", tasks=3),
    Cell(1, limit=700, trigger="0s"),
    Cell(4, SMALL, limit=1),
    Cell(4, master="local[1]", limit=999, tasks=1),
    Cell(4, master="local[4]", tasks=4),
    Cell(4, trigger="1s", limit=3000),
    Cell(4, trigger="10s", limit=7000, tasks=3),
    Cell(4, start=True),
    Cell(4, limit=2500, start=True),
    Cell(4, master="cluster"),
    Cell(16, SMALL, limit=16, master="local[4]"),
    Cell(16, master="local[1]", tasks=5),
    Cell(16, trigger="0s", limit=4000, master="local[4]", tasks=4),
    Cell(16, start=True, master="local[4]"),
    Cell(16, master="cluster", limit=6000),
)


@dataclass(frozen=True, slots=True)
class Input:
    """A raw topic and what it holds."""

    topic: str
    raws: list[Raw]
    partitions: int

    def told(self, finish: bool, start_us: int | None) -> dict[Channel, list[Event]]:
        """Return what a run must write: to the end or not, from the beginning or from a time."""
        logs = logs_of(self.raws, self.partitions)
        told = expected(logs, _POLICIES, _OUTPUTS, over=True, finish=finish)
        if start_us is None:
            return told
        kept = {channel: [event for event in events if event.system_us >= start_us] for channel, events in told.items()}
        return {channel: [event._replace(seq=seq) for seq, event in enumerate(events)] for channel, events in kept.items() if events}

    def some_time_us(self, dice: random.Random) -> int:
        """Return a time in the middle of the events."""
        log = logs_of(self.raws, self.partitions)[0]
        times = [event.system_us for event in story_of(log, _POLICIES, 0, _OUTPUTS, over=True, finish=True).ordered]
        return dice.choice(times[len(times) // 4 : len(times) * 3 // 4])


def run_matrix(folder: Path, seed: int, cells: Sequence[Cell] = CELLS) -> int:
    """Run every cell; print a line for each; return the exit code."""
    dice, wrong = random.Random(seed), 0
    folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedStack(folder / "stack", heap="512m") as stack, contextlib.ExitStack() as undo:
        inputs: dict[tuple[int, str], Input] = {}
        address = ""
        for cell in cells:
            if (cell.partitions, cell.log) not in inputs:
                inputs[cell.partitions, cell.log] = make_input(stack, cell.partitions, _EVENTS[cell.log], dice.randrange(2**32))
            if cell.master == "cluster" and not address:
                address = undo.enter_context(cluster(folder / "cluster", _ROOT))
            begun_s = time.monotonic()
            told = run_cell(stack, folder, cell, inputs[cell.partitions, cell.log], dice, address)
            wrong += bool(told)
            print(f"{time.monotonic() - begun_s:6.1f} s  {cell}: {told or 'as the oracle tells'}", flush=True)
    print(f"\n{len(cells)} runs: {wrong} differ" if wrong else f"\n{len(cells)} runs: identical event sequences, each equal to its oracle")
    return 1 if wrong else 0


def make_input(stack: EmbeddedStack, partitions: int, events: int, seed: int) -> Input:
    """Make a raw topic with seeded disorder."""
    drawn = draw(seed, events, partitions, bad=0.01, keys=[f"key{number}" for number in range(50)])
    # Stamps far ahead are judged by the wall clock and counted apart: they have no part in this.
    raws = [raw for raw in drawn if raw.reason != "arrival_ahead"]
    topic = create(stack.bootstrap, fresh("matrix"), partitions)
    produce(stack.bootstrap, topic, raws)
    return Input(topic, raws, partitions)


def run_cell(stack: EmbeddedStack, folder: Path, cell: Cell, given: Input, dice: random.Random, address: str = "") -> str:
    """Order the input once; return the first difference, empty if there is none."""
    ordered_topic = fresh("matrix-ordered")
    start_us = given.some_time_us(dice) if cell.start else None
    with _space(folder / ordered_topic, stack, given.topic) as space:
        try:
            _run(space, cell, given, ordered_topic, start_us, address)
        except AssertionError as error:
            return f"DOES NOT RUN: {str(error)[-1500:]}"
    found = read_ordered(stack.bootstrap, ordered_topic, _OUTPUTS)
    return _differs(found, given.told(finish=cell.trigger is None, start_us=start_us))


def _differs(found: Ordered, told: dict[Channel, list[Event]]) -> str:
    try:
        check_promises(found)
    except AssertionError as error:
        return f"BROKEN PROMISE: {error}"
    for channel in sorted({*found.events, *told}):
        one, other = found.events.get(channel, []), told.get(channel, [])
        if one != other:
            return f"DIFFERS in channel {channel} {first_difference(one, other)}"
    return ""


@contextlib.contextmanager
def _space(folder: Path, stack: EmbeddedStack, topic: str) -> Iterator[Workspace]:
    space = Workspace(folder, stack, _TABLES.format(topic=topic))
    try:
        yield space
    finally:
        space.clear()


def _run(space: Workspace, cell: Cell, given: Input, ordered_topic: str, start_us: int | None, address: str) -> None:
    flags = settings_of(
        inputs__events__ordered_topic=ordered_topic,
        spark__master=address if cell.master == "cluster" else cell.master,
        spark__shuffle_partitions=cell.tasks,
        spark__trigger=cell.trigger or "0s",
    )
    if cell.limit:
        flags += settings_of(inputs__events__max_events_per_batch=cell.limit)
    if start_us is not None:
        flags += ["--start", format_tick(start_us)]
    if cell.trigger is None:
        job = space.start_alone("ingest", "events", "--until-end", *flags)
        code = job.wait(PATIENCE_S)
        assert code == 0, f"exit code {code}: {job.errors[-3000:]}"
        return
    job = space.start_alone("ingest", "events", *flags)
    job.until(lambda: job.last.get("events_in", 0) >= len(given.raws), "everything read", PATIENCE_S)
    job.stop()
