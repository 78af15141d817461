"""
All stages in one process under fire: ``make faults ONLY=run``, or ``python tests/faults/run.py --only run --rounds 30 --seed 7``.

A round is a pipeline of two inputs and three queries that read one another, run by ``tidegate run`` in small batches, while records come
and its processes are killed: the whole session, the driver, the JVM, a worker or a planner, anywhere, at named points and in recovery. A
part of the records is there at the start; the rest comes little by little, so that kills fall within open batches. Who ends by it is
started again, as by a service manager. Between two kills a query may move to a process of its own and back. In every other round a
further query has a script that is wrong: it fails for good.

Law, levels 1 and 3: every topic, and the files, hold what processes of their own write that nobody disturbs. A stage that fails for good is
named, and its neighbours come to their end.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from faults.chains import in_one_line
from faults.kills import DRIVER, JVM, PLANNER, RECOVERY, SESSION, WORKER, Kill
from faults.lives import Lives
from support.law_breaches import demand
from support.stack.drawn_logs import Raw, draw
from support.stack.jobs import Job, Workspace
from support.stack.topics import check_promises, create, fresh, produce, read_ordered

from tidegate.basics.fault_points import POINTS
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

RECORDS, PARTITIONS, KEYS = 2_000, 2, ("a", "bb", "ccc", "d")
KILLS_A_ROUND, FAILS_MAX, END_S = 4, 4, 420.0
BATCH_SIZES = 25, 60, 200
SPANS = "0s", "1500ms", "30s"
MOVED_S = 8.0
# The part of the records that is there at the start; and how many come each second into each input.
FIRST, A_SECOND = 0.2, 15
# A report of a task's own is so new if a batch is open and records come: tasks tell once a second, if they have read any.
OPEN_S = 2.5
TABLES = """
[inputs.one]
topic = "{one}"
ordered_topic = "{tag}.one"
timestamp_by = "at"
late = "20s"
reorder = "2s"

[inputs.two]
topic = "{two}"
ordered_topic = "{tag}.two"
timestamp_by = "at"
late = "20s"

[outputs.counts]
topic = "{tag}.counts"
files = "counts"

[outputs.sums]
topic = "{tag}.sums"

[outputs.pairs]
topic = "{tag}.pairs"

[queries.sums]
script = "sums.sql"
into = "sums"

[queries.pairs]
script = "pairs.sql"

[queries.counts]
script = "counts.sql"
"""
WRONG = '[queries.wrong]\nscript = "wrong.sql"\ninto = "wrong"\n[outputs.wrong]\ntopic = "{tag}.wrong"\n'
SCRIPTS = {
    "counts.sql": "SELECT k, COUNT(*) AS n, SUM(v) AS v INTO counts FROM one TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 5)",
    "sums.sql": "SELECT SUM(n) AS n, SUM(v) AS v FROM counts GROUP BY TumblingWindow(second, 20)",
    "pairs.sql": (
        "SELECT s.n AS n, two.v AS v INTO pairs FROM sums AS s JOIN two TIMESTAMP BY at ON DATEDIFF(second, s, two) BETWEEN 0 AND 2"
    ),
    "wrong.sql": "SELECT nothing FROM",
}
TOPICS = ("one", "two", "counts", "sums", "pairs")
QUERIES = ("counts", "sums", "pairs")


@dataclass(slots=True)
class PipelineOutcome:
    """What came of a round."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    # How many kills fell within open batches into which records came.
    within_open: int = 0
    ended: list[str] = field(default_factory=list)
    lives: int = 0
    # How many lives kept their batches open for how long.
    spans: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    # Rounds in which a stage failed for good and its neighbours did not.
    isolated: int = 0
    compared: int = 0
    written_twice: int = 0
    broken: str = ""


class PipelineLives(Lives):
    """The process of all stages and its lives, each with a limit of its batches; *tag* begins the names of its topics."""

    def __init__(self, stack: EmbeddedStack, space: Workspace, dice: random.Random, tag: str) -> None:
        super().__init__(stack, space)
        self._dice, self._tag = dice, tag
        self.spans: Counter[str] = Counter()

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint of the first input: where in a batch a kill struck is told by it."""
        return self.space.folder / ".tidegate" / "checkpoints" / f"ingest-{self._tag}.one"

    def _begin(self, environment: dict[str, str]) -> Job:
        size, span = self._dice.choice(BATCH_SIZES), self._dice.choice(SPANS)
        self.spans[span] += 1
        drawn = [
            f"inputs.{name}.{key}={value}"
            for name in ("one", "two")
            for key, value in (("max_events_per_batch", size), ("batch_span", span))
        ]
        drawn.append(f"query.batch_span={span}")
        return self.space.start_alone("run", "--no-page", *(word for each in drawn for word in ("--set", each)), **environment)


def draw_strike(dice: random.Random, *, first: bool) -> Kill:
    """Draw a kill: anywhere, at a named point of a task, or, if it is not the first, in recovery."""
    kind, victim = dice.uniform(0, 0.85 if first else 1), dice.choice((SESSION, DRIVER, JVM, WORKER, WORKER, PLANNER))
    if kind < 0.5:
        return Kill(victim, wait_s=dice.uniform(0.0, 4.0))
    if kind < 0.85:
        return Kill(victim, dice.choice(POINTS), dice.randint(1, 4))
    return Kill(dice.choice((SESSION, DRIVER, JVM)), RECOVERY, 1, dice.uniform(1.0, 9.0))


class Feed:
    """Sends the *records* of raw topics, by topic, little by little; a context manager, after which all are there."""

    def __init__(self, bootstrap: str, records: Mapping[str, Sequence[Raw]]) -> None:
        self._bootstrap, self._records = bootstrap, records
        self._sent, self._is_over = dict.fromkeys(records, 0), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        for topic, records in self._records.items():
            self._send(topic, round(FIRST * len(records)))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for topic, records in self._records.items():
            self._send(topic, len(records))

    def _run(self) -> None:
        while not self._is_over.wait(1.0):
            for topic in self._records:
                self._send(topic, A_SECOND)

    def _send(self, topic: str, count: int) -> None:
        first = self._sent[topic]
        self._sent[topic] = first + count
        produce(self._bootstrap, topic, self._records[topic][first : first + count])


class PipelineRound:
    """One round in a *folder* of its own, with the raw topics *raw* by their names."""

    def __init__(self, stack: EmbeddedStack, folder: Path, seed: int, raw: dict[str, str], *, fails: bool) -> None:
        self._stack, self._dice, self._fails = stack, random.Random(seed), fails
        self.outcome = PipelineOutcome(seed)
        self._tag = fresh("pipeline")
        self.space = make_space(stack, folder, raw, self._tag, WRONG if fails else "")

    def play(self, kills: int, feed: Feed, apart: dict[str, object], tell: Callable[[str], None]) -> None:
        """Kill so many times while records come, let it come to its end, and compare with what stages *apart* wrote."""
        lives = PipelineLives(self._stack, self.space, self._dice, self._tag)
        try:
            with feed:
                for number in range(kills):
                    self._strike(lives, first=number == 0, tell=tell)
            self._finish(lives)
            self._compare(apart)
            tell(f"all stages at their end: {self.outcome.compared:,} records as written apart")
        finally:
            lives.close()
            self.outcome.kills, self.outcome.lives, self.outcome.spans = lives.kills, lives.lives, lives.spans
            self.outcome.ended = lives.ended

    def _strike(self, lives: PipelineLives, *, first: bool, tell: Callable[[str], None]) -> None:
        kill = draw_strike(self._dice, first=first)
        lives.arm = kill.held_at
        if lives.lives and lives.job.running and lives.arm is not None:
            lives.job.kill()  # only a new life holds itself still
        if not lives.lives or not lives.job.running:
            lives.start()
        if not kill.point:
            self._await_batch(lives)
        hit = kill.strike(lives)
        within_open = self._has_open_batch(time.time() - (time.monotonic() - lives.struck_s))
        self.outcome.within_open += within_open
        lives.arm = None
        self.outcome.struck[hit] += 1
        time.sleep(self._dice.uniform(0, 3))  # who survives begins again, or ends
        where = ", with records in an open batch" if within_open else ""
        tell(f"{kill.name}{'' if hit in kill.name else f' ({hit})'}{where}; {'it goes on' if lives.job.running else 'it has ended'}")
        if self._dice.random() < 0.3:
            self._move(lives, tell)
        lives.release_or_held()
        lives.revive()

    def _has_open_batch(self, struck_s: float) -> bool:
        """Return whether records came into an open batch of a stage until a kill at this time, by the wall clock."""
        checkpoints = self.space.folder / ".tidegate" / "checkpoints"
        told_s = [file.stat().st_mtime for file in checkpoints.glob("*/open_report_*.json")]
        return any(struck_s - OPEN_S < at_s <= struck_s for at_s in told_s)

    def _await_batch(self, lives: PipelineLives) -> None:
        deadline_s = time.monotonic() + lives.patience_s
        while lives.job.running and not lives.job.batches and time.monotonic() < deadline_s:
            time.sleep(0.1)

    def _move(self, lives: PipelineLives, tell: Callable[[str], None]) -> None:
        """Run a query in a process of its own for a while, and have it back."""
        lives.job.end()
        name = self._dice.choice(QUERIES)
        moved = self.space.start("query", name)
        deadline_s = time.monotonic() + MOVED_S
        while moved.running and time.monotonic() < deadline_s and not moved.batches:
            time.sleep(0.1)
        moved.end()
        self.outcome.moves += 1
        tell(f"query {name} has run alone: {moved.batches} batches")

    def _finish(self, lives: PipelineLives) -> None:
        lives.job.end()
        for _ in range(FAILS_MAX):
            job = self.space.start_alone("run", "--no-page", "--until-end")
            code = job.wait(END_S)
            if code == (2 if self._fails else 0):
                break
            lives.ended.append(f"exit code {code}")
        ends = {line["stage"]: line["phase"] for line in job.lines if line["event"] == "end"}
        neighbours = dict.fromkeys((f"ingest:{name}" for name in ("one", "two")), "ended") | dict.fromkeys(
            (f"query:{name}" for name in QUERIES), "ended"
        )
        demand({stage: ends.get(stage) for stage in neighbours} == neighbours, "all come to their end", f"{ends} {job.errors[-2500:]}")
        if self._fails:
            demand("query:wrong" in job.errors and "TG-QUERY" in job.errors, "a failure is named", job.errors[-2500:])
            self.outcome.isolated += 1

    def _compare(self, apart: dict[str, object]) -> None:
        mine = content(self._stack, self.space, self._tag)
        for name, told in apart.items():
            demand(mine[name] == told, "levels 1 and 3", f"{self._tag}.{name} differs from what its own process wrote")
        for name in TOPICS:
            found = read_ordered(self._stack.bootstrap, f"{self._tag}.{name}", partitions(self._stack, f"{self._tag}.{name}"))
            check_promises(found, killed=True)
            self.outcome.compared += len(found.all_events())
            self.outcome.written_twice += found.duplicates


def make_space(stack: EmbeddedStack, folder: Path, raw: dict[str, str], tag: str, more: str = "") -> Workspace:
    """Return a folder with the pipeline over the raw topics."""
    space = Workspace(folder, stack, (TABLES + more).format(tag=tag, **raw))
    for name, text in SCRIPTS.items():
        space.script(name, text)
    return space


def partitions(stack: EmbeddedStack, topic: str) -> int:
    """Return how many partitions a topic has."""
    return Admin({"bootstrap.servers": stack.bootstrap}).require(topic).partitions


def content(stack: EmbeddedStack, space: Workspace, tag: str) -> dict[str, object]:
    """Return what the topics hold, each event once, and the bytes of the files."""
    found: dict[str, object] = {}
    for name in TOPICS:
        topic = f"{tag}.{name}"
        read = read_ordered(stack.bootstrap, topic, partitions(stack, topic))
        # Results are numbered by the topic that they stand in.
        found[name] = in_one_line(read) if name in QUERIES else read.events
    found["files"] = {file.name: file.read_bytes() for file in (space.folder / "counts").iterdir()}
    return found


def run_pipelines(folder: Path, seed: int, rounds: int, minutes: float) -> int:
    """Play rounds, as many as asked for and as time allows; return the exit code."""
    dice, outcomes, begun_s = random.Random(seed), list[PipelineOutcome](), time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - begun_s:6.0f} s  {line}", flush=True)

    with EmbeddedStack(folder / "stack", heap="512m") as stack, contextlib.suppress(KeyboardInterrupt):
        records = {name: draw(dice.randrange(2**32), RECORDS, PARTITIONS, keys=KEYS) for name in ("one", "two")}
        raw = {name: create(stack.bootstrap, fresh(name), PARTITIONS) for name in records}
        for name, topic in raw.items():
            produce(stack.bootstrap, topic, records[name])
        told = _run_apart(stack, folder / "apart", raw)
        tell("each stage has run in a process of its own")
        for number in range(1, rounds + 1):
            if time.monotonic() - begun_s > 60 * minutes:
                print(f"\nthe time is over: {number - 1} rounds were played")
                break
            own = dice.randrange(2**32)
            print(f"\nround {number}, seed {own}", flush=True)
            raw = {name: create(stack.bootstrap, fresh(name), PARTITIONS) for name in records}
            feed = Feed(stack.bootstrap, {topic: records[name] for name, topic in raw.items()})
            played = PipelineRound(stack, folder / f"round-{number}", own, raw, fails=number % 2 == 0)
            try:
                played.play(KILLS_A_ROUND, feed, told, tell)
            except AssertionError as error:
                played.outcome.broken = str(error)
                print(f"BROKEN: {played.outcome.broken[:3000]}", flush=True)
            outcomes.append(played.outcome)
    return _report(outcomes, time.monotonic() - begun_s)


def _run_apart(stack: EmbeddedStack, folder: Path, raw: dict[str, str]) -> dict[str, object]:
    tag = fresh("apart")
    space = make_space(stack, folder, raw, tag)
    try:
        space.start("ingest", "one", "two", "--until-end").finish()
        for name in QUERIES:
            space.start("query", name).finish()
        return content(stack, space, tag)
    finally:
        space.clear()


def _report(outcomes: Sequence[PipelineOutcome], took_s: float) -> int:
    """Print the summary; return the exit code: 1 if a law was broken, or nothing was compared or struck."""
    kills: Counter[str] = sum((each.kills for each in outcomes), Counter())
    struck: Counter[str] = sum((each.struck for each in outcomes), Counter())
    spans: Counter[str] = sum((each.spans for each in outcomes), Counter())
    ended = Counter(code for each in outcomes for code in each.ended)
    print(f"\nkill -9: {kills.total()} ({', '.join(f'{count} {victim}' for victim, count in kills.most_common())})")
    print(f"within open batches into which records came: {sum(each.within_open for each in outcomes)}")
    print(f"where kills struck: {', '.join(f'{count} {point}' for point, count in struck.most_common())}")
    print(f"lives by batch_span: {', '.join(f'{count} of {span}' for span, count in sorted(spans.items()))}")
    if ended:
        print(f"lives that ended by themselves after a fault: {', '.join(f'{count} {code}' for code, count in ended.most_common())}")
    sums = {name: sum(getattr(each, name) for each in outcomes) for name in ("lives", "moves", "isolated", "compared", "written_twice")}
    print(
        "{lives:,} lives; {moves:,} queries moved to a process of their own; {isolated:,} rounds with a stage that failed for good; "
        "{compared:,} events and results compared, {written_twice:,} written twice".format(**sums)
    )
    broken = [each for each in outcomes if each.broken]
    for each in broken:
        print(f"\nBROKEN: seed {each.seed}\n  {json.dumps(each.broken[:1500])}")
    print(f"\n{len(outcomes)} rounds in {took_s:.0f} s: {len(broken)} broke a law" + ("" if broken else "; every check passed"))
    idle = not (sums["compared"] and kills.total())
    if idle and not broken:
        print("but nothing was struck or compared: that proves nothing")
    return 1 if broken or idle else 0
