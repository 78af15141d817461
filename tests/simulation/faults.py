"""
Faults: what goes wrong in a simulated run, when, and how each kind is drawn.

A crash strikes at a *point*: between two steps of the driver or of a task, named by the step just done, at the nth time
that point is reached. The other faults strike at times.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from ordering.ticks import SECOND_US

DRIVER_POINTS = (
    "checkpoint read",
    "clock read",
    "new partitions found",
    "ends known",
    "positions closed",
    "marks read",
    "silence seen",
    "estimates journaled",
    "other input seen",
    "imports journaled",
    "offset logged",
    "tasks done",
    "reports left",
    "batch committed",
)
TASK_POINTS = ("state loaded", "piece written", "range judged", "events acknowledged", "CTIs sent", "CTIs acknowledged", "state saved")
OPEN_POINTS = (
    "batch stays open",
    "looked for records",
    "open: positions closed",
    "open: noted",
    "open: round judged",
    "open: events acknowledged",
    "open: CTIs sent",
    "open: CTIs acknowledged",
    "open: silence seen",
    "open: estimates journaled",
)
"""Steps of a task in an open batch."""
BETWEEN_POINTS = (
    "between: looked for records",
    "between: positions closed",
    "between: noted",
    "between: round judged",
    "between: events acknowledged",
    "between: CTIs sent",
    "between: CTIs acknowledged",
)
"""Steps of what goes on between two batches."""
AFTERLIVES = ("dead", "late", "holes", "zombie", "split")
"""
What a crashed process still does: nothing; the rest of what it had sent arrives later; it arrives with holes, though no writer
may leave any; the process goes on; it goes on although the new one works with a copy of the checkpoint.
"""


TROUBLES = ("old drivers", "journal", "checkpoint lost", "partition joins")
"""What a run has of the faults that are not drawn together."""


@dataclass(frozen=True, slots=True)
class Fault:
    """
    One fault.

    Args:
        kind: ``crash``, ``clock step``, ``journal away``, ``journal wiped``, ``broker away``, ``open transaction``,
            ``journal fails`` (at a point, for by_us), ``checkpoint lost``, ``partition joins``, ``skip`` (somebody stops the job
            and asks for one) or ``skip undone``.
        point: Of a crash, or of a journal that fails: after which step.
        nth: At which time that step is done, counted from 1 over the whole run.
        again: Of a crash: how often it strikes again at once, when the step is done the next times.
        victim: Of a crash: ``driver`` (with its tasks) or ``task``.
        afterlife: Of a crash: see ``AFTERLIVES``.
        partition: Input partition of a clock step or an open transaction.
        from_us, until_us: When it strikes and ends, virtual time.
        by_us: How far the broker's clock steps; how long the journal fails.
    """

    kind: str
    point: str = ""
    nth: int = 0
    again: int = 0
    victim: str = "driver"
    afterlife: str = "dead"
    partition: int = 0
    from_us: int = 0
    until_us: int = 0
    by_us: int = 0

    def __str__(self) -> str:
        if self.kind == "crash":
            again = f", and {self.again} more" if self.again else ""
            return f"{self.victim} crash ({self.afterlife}) after {self.point!r} number {self.nth}{again}"
        if self.kind == "journal fails":
            return f"the journal fails after {self.point!r} number {self.nth} for {self.by_us} us"
        if self.kind == "clock step":
            return f"clock of raw {self.partition} steps by {self.by_us} us"
        of = f" of raw {self.partition}" if self.kind == "open transaction" else ""
        return f"{self.kind}{of} for {max(self.until_us - self.from_us, 0)} us"


def draw_faults(
    chance: random.Random,
    inputs: int,
    estimates: bool,
    start_us: int,
    ends_us: int,
    trouble: str | None = None,
    afterlife: str | None = None,
) -> tuple[Fault, ...]:
    """
    Draw a run's faults; with *trouble* of that kind, and crashes with that *afterlife*.

    Old drivers that go on, a journal that forgets, a lost checkpoint and partitions that join are not drawn together: positions
    closed in a journal that was lost are open to an old driver until they are closed again, and one that knows nothing of a
    new partition may pass the moment at which it joins.
    """
    drawn = chance.choice(TROUBLES)
    trouble = trouble or drawn
    journal_fails = trouble == "journal"
    faults = [_draw_crash(chance, trouble == "old drivers", afterlife) for _ in range(chance.choice([0, 1, 2, 3, 4, 6]))]
    span_us = ends_us - start_us

    def window(kind: str, share: float) -> Fault:
        from_us = start_us + chance.randrange(span_us)
        return Fault(kind, partition=chance.randrange(inputs), from_us=from_us, until_us=from_us + int(span_us * share * chance.random()))

    if estimates and (journal_fails or (trouble == "checkpoint lost" and chance.random() < 0.5)):
        faults += [window("journal away", 0.4) for _ in range(chance.randint(0, 2))]
    if estimates and journal_fails:
        faults += [window("journal wiped", 0.0) for _ in range(chance.randint(0, 1))]
    if trouble in ("checkpoint lost", "partition joins"):
        faults += [window(trouble, 0.0) for _ in range(chance.choice([1, 1, 2]))]
    if chance.random() < 0.2:
        faults.append(window("broker away", 0.3))
    if chance.random() < 0.4 or trouble == "open transaction":
        faults.append(window("open transaction", 0.6))
    if chance.random() < 0.3:
        by_us = chance.choice([-1, 1]) * chance.choice([SECOND_US // 2, span_us // 60, span_us // 6])
        step = window("clock step", 0.0)
        faults.append(Fault("clock step", partition=step.partition, from_us=step.from_us, by_us=by_us))
    return tuple(faults)


def draw_open_crashes(chance: random.Random, drawn: tuple[Fault, ...], wanted: str | None = None) -> tuple[Fault, ...]:
    """Draw crashes in open batches, and in what goes on after them, beside those that were *drawn*: they allow the same afterlives."""
    kinds = {fault.kind for fault in drawn}
    lives = {fault.afterlife for fault in drawn if fault.kind == "crash" and fault.victim == "driver"}
    zombies = bool(lives & {"zombie", "split"}) or wanted in ("zombie", "split")
    faults = []
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        victim, point = chance.choice(["driver", "task"]), chance.choice(OPEN_POINTS + BETWEEN_POINTS)
        afterlife = chance.choice(AFTERLIVES if zombies else AFTERLIVES[:3])
        if victim == "task" and afterlife == "split":
            afterlife = "zombie"
        nth, again = chance.choice([1, 2, 3, 5, 8, 15]), chance.choice([0, 0, 0, 1, 2])
        faults.append(Fault("crash", point, nth, again, victim, "dead" if kinds & {"skip", "skip undone"} else afterlife))
    if kinds & {"journal away", "journal wiped"} and not kinds & {"skip", "skip undone", "checkpoint lost"}:
        for _ in range(chance.choice([0, 1, 1, 2])):
            by_us = chance.choice([SECOND_US // 10, SECOND_US, 10 * SECOND_US])
            faults.append(Fault("journal fails", chance.choice(OPEN_POINTS + BETWEEN_POINTS), chance.choice([1, 2, 3, 5]), by_us=by_us))
    return tuple(faults)


def without_zombie_tasks(drawn: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """
    Return what was *drawn* for a job with open batches: if its journal fails, no task goes on beside the one that has taken its place. It
    would journal estimates of which nobody knows who goes on without the journal.
    """
    if not {fault.kind for fault in drawn} & {"journal away", "journal wiped", "journal fails"}:
        return drawn
    return tuple(replace(fault, afterlife="dead") if (fault.victim, fault.afterlife) == ("task", "zombie") else fault for fault in drawn)


def draw_skips(chance: random.Random, drawn: tuple[Fault, ...], start_us: int, ends_us: int) -> tuple[Fault, ...]:
    """
    Return *drawn* with skips that are asked for and undone.

    An attempt that goes on, or whose rows arrive when the job has been started again, is not drawn with them: what is there already is
    compared at a start, so a skip holds only once no earlier attempt writes any more. Nor is a lost checkpoint: ranges are cut otherwise
    then, and a skip that does not fit may be passed before that shows.
    """
    faults = [replace(fault, afterlife="dead") for fault in drawn]
    for kind, most in (("skip", 8), ("skip undone", 6), ("journal wiped", 1)):
        faults += [Fault(kind, from_us=start_us + chance.randrange(ends_us - start_us)) for _ in range(chance.randint(0, most))]
    if chance.random() < 0.3:
        faults.append(Fault("crash", "skips journaled", 1))
    return tuple(faults)


def _draw_crash(chance: random.Random, zombies: bool, wanted: str | None = None) -> Fault:
    victim = chance.choice(["driver", "task"])
    point = chance.choice(DRIVER_POINTS + TASK_POINTS if victim == "driver" else TASK_POINTS)
    # A task that goes on touches no journal.
    afterlives = ("dead", "late", "holes", "zombie") if victim == "task" else AFTERLIVES if zombies else AFTERLIVES[:3]
    afterlife = chance.choice(afterlives)
    if wanted == "split":
        victim, afterlife = "driver", wanted
    elif wanted == "holes":
        point, afterlife = chance.choice(["piece written", "range judged"]), wanted
    if victim == "driver" and afterlife in ("zombie", "split") and (wanted or chance.random() < 0.5):
        # An old driver does harm where it goes on with what it believes about a position.
        point = "silence seen" if wanted else chance.choice(["silence seen", "other input seen"])
    nth, again = chance.choice([1, 2, 3, 5, 8, 15]), chance.choice([0, 0, 0, 1, 2])
    return Fault("crash", point, nth, again, victim, afterlife)


REQUIRED = (
    *(f"crash after {point}" for point in DRIVER_POINTS + TASK_POINTS + OPEN_POINTS + BETWEEN_POINTS),
    "driver crash",
    "task crash",
    "crash in recovery",
    "torn write",
    "torn twice",
    "late arrival of what was sent",
    "arrival with holes",
    "zombie driver",
    "zombie task",
    "split driver",
    "rows written by zombies",
    "zombie refused by the offset log",
    "estimate refused",
    "batch run again",
    "state restored",
    "clock step",
    "arrival clamped",
    "journal away",
    "journal wiped",
    "journal fails",
    "journal lost while planning",
    "estimate unanswered",
    "facts given back to the journal",
    "broker away",
    "checkpoint lost",
    "partition joins",
    "open transaction",
    "estimate",
    "import",
    "CTI of the source",
    "CTI in parts",
    "list of substreams",
    "interval",
    "edge",
    "reader from the middle",
    "reader restarted",
    "resumed from CTIs",
    "crash after skips journaled",
    "skip in force",
    "skip asked for too late",
    "skip withdrawn",
    "skip refused by what was written",
    "compared with an earlier attempt",
    "open round",
    "estimate of an open batch",
    "estimate of another job",
    "open batch after a micro-batch",
    "micro-batch after an open batch",
    "open batch ended without the journal",
    "open batch ended for new partitions",
    "goes on between batches",
    "state taken over where it stood",
    "counted from an estimate of an open batch",
    "a join waited for what goes on",
    "the planner waited for what goes on",
    "journal rebuilt from the topic",
    "an emptied journal left to the planner",
    "open batch ended by a task that is repeated",
    "run to the end",
)
"""
What must happen at least once in a thousand seeds: a fault that never strikes proves nothing.

An import refused at a closed position is not among them: the simulated planner asks for the ends and journals in one turn, so
nobody closes in between. ``tests/ordering/protocol/test_journal.py`` and ``tests/ingest/journal/test_redis_journal.py`` hold that rule.
"""


@dataclass(frozen=True, slots=True)
class Breakage:
    """A rule that a simulated job can be told to break: what it does then, and the runs in which that shows most often."""

    what: str
    trouble: str | None = None
    settings: dict[str, bool | int | None] = field(default_factory=dict)
    afterlife: str | None = None


_SILENCE: dict[str, bool | int | None] = {"estimates": True, "drift_ppm": 0}
OPEN: dict[str, bool | int | None] = {"opens": True, "batch_events": 1000, "imported_lag_us": None}
"""Settings of a job whose batches stay open."""
BREAKAGES = {
    "CTIs do not wait": Breakage("CTIs go through a producer of their own, before the events they count are acknowledged"),
    "nothing waits for acknowledgements": Breakage("a batch is committed although its last rows may be lost with the process"),
    "estimates are not journaled": Breakage("an estimate is used without being a fact of the journal", settings=_SILENCE),
    "positions stay open": Breakage("the journal still takes estimates at positions that were judged", "old drivers", _SILENCE, "split"),
    "unanswered estimates are forgotten": Breakage(
        "an estimate whose answer was lost may be in force, but its record is judged without it", "journal", _SILENCE
    ),
    "marks are skipped when the journal fails": Breakage(
        "a range whose estimates could not be read is judged without them", "checkpoint lost", _SILENCE
    ),
    "a lost journal stays lost": Breakage("a journal that forgot what was judged is not told again", "journal", _SILENCE),
    "estimates wait for silence everywhere": Breakage(
        "a partition that is silent beside a busy one is never estimated", settings=_SILENCE | {"steady": True}
    ),
    "absurd arrivals are believed": Breakage("an estimate counts on from a stamp so far ahead that its record was refused"),
    "estimates pass over open transactions": Breakage(
        "an estimate is made although records stand behind an open transaction", "open transaction", _SILENCE
    ),
    "the clock is read last": Breakage("the clock of an estimate is read after the end of the partition was asked for", settings=_SILENCE),
    "partitions join behind": Breakage("a partition joins below what channels have promised", "partition joins"),
    "skips are not compared": Breakage("a skip holds although an earlier attempt has written what it changes", "skips"),
    "judged offsets are skipped": Breakage("a skip of what a CTI or a committed batch has judged takes effect", "skips"),
    "skips are forgotten": Breakage("a start puts in force only what was asked for since the last one", "skips"),
    "open batches use facts before they are durable": Breakage(
        "an open batch raises the arrival frontier, and journals the estimate afterwards", settings=OPEN | {"estimates": True}
    ),
    "open batches judge before they close": Breakage(
        "an open batch judges records whose positions are open, without the estimates in force there", "old drivers", OPEN, "split"
    ),
    "open batches promise at once": Breakage(
        "a CTI of an open batch goes before the events that it counts are acknowledged", settings=OPEN
    ),
    "open batches are saved past what was written": Breakage(
        "the state of an open batch is saved although its last rows may be lost with the process", settings=OPEN
    ),
    "positions of torn batches are believed": Breakage(
        "a range begins where an open batch had come to that was not committed", settings=OPEN
    ),
    "what stages close is not noted": Breakage(
        "what open batches close and estimate is not told to their planner",
        "journal",
        OPEN | {"estimates": True, "drift_ppm": 20_000},
    ),
    "open batches end where they began": Breakage(
        "an event that an open batch released by an estimate at its planned end is taken for one that other skips have changed",
        "skips",
        OPEN | {"estimates": True},
    ),
    "open batches go on comparing": Breakage(
        "what an open batch releases after a range that was compared with an earlier attempt is compared too, and never written",
        "skips",
        OPEN,
    ),
    "partitions join while something goes on": Breakage(
        "a partition joins although a task of the last batch may still promise more", "partition joins", OPEN | {"inputs": 1}
    ),
    "memory of others is taken over": Breakage(
        "what is left in memory is taken over, although another process went on in between", settings=OPEN
    ),
    "clocks of other machines are believed": Breakage(
        "what a report says of a clock counts although that clock was another machine's", settings=OPEN | {"estimates": True}
    ),
    "readers pass over gaps": Breakage("a reader takes any later number for the next", afterlife="holes"),
}
