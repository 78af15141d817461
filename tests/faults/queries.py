"""
Query jobs under fire: ``make faults ONLY=queries``, or ``python tests/faults/run.py --only queries --rounds 6 --seed 7``.

A round is an ordered topic as crashing writers leave it, written while it is read, and two jobs over it: one advances by
substreams (OVER), one in one line. Each computes many kinds of query (``kind_scripts``) and questions that plain Python answers too.
Both are killed again and again, and started again with other cores and other limits of a batch. Then two more start at a random
time. What all of them wrote must be, byte for byte, what ``query_told`` tells.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faults.kills import DRIVER, JVM, RECOVERY, SESSION, WATCHED, WORKER, Kill, slain
from faults.lives import POLL_S, Lives
from faults.points import Checkpoint
from faults.query_told import Told, check_results, input_table, told
from faults.query_topics import Writer, faults_of
from support.bucket_oracle import Question
from support.bucket_runs import Raw, dense
from support.bucket_topics import Topic
from support.composed_scripts import compose_scripts, outputs_of
from support.law_breaches import demand
from support.query_kinds import FIRST, SECOND
from support.stack.jobs import Job, Workspace, settings_of
from support.stack.topics import exists, fresh, header, read_ordered, records

from ordering.ticks import format_tick
from query.stage.offsets import QueryOffset
from query.stage.open_positions import least_offsets
from tidegate.basics.fault_points import POINTS
from tidegate.platform.checkpoint.offset_log import read_offset
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.reports import BucketReport
from tidegate.platform.stack.embedded import EmbeddedStack

START_US, TICK_US, UNIT = 1_709_251_200_000_000, 1_000, "ms"
"""The first arrival, what times are multiples of, and what scripts call that."""
KILLS_A_JOB = 3
CORES = 1, 2, 4
SPANS = "0s", "0s", "3s", "10m"
"""How long a batch of a life stays open: half of them read in micro-batches."""
END_S, FAILS_MAX = 600.0, 3
STALL_S = 480.0
"""Patience with a life to get to work: two jobs start at once, on a machine that may be busy."""
ASKED = {"asked_passed": (0, 0), "asked_tumbling": (7 * TICK_US, 7 * TICK_US), "asked_hopping": (9 * TICK_US, 4 * TICK_US)}
"""Window and hop of the questions that plain Python answers, microseconds."""
SHORT, LONG = 120, 700
"""Records of each raw log. Of a long topic a job that starts at a time leaves out the beginning, and plain Python is too slow."""
LATER_LIMITS = 25, 50
"""Most events of a batch of a job that starts at a time."""


@dataclass(slots=True)
class Round:
    """What came of a round."""

    seed: int
    kinds: tuple[str, ...]
    kills: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    cores: Counter[int] = field(default_factory=Counter)
    spans: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    compared: int = 0
    compared_after_kills: int = 0
    midway: int = 0
    suffixes: int = 0
    from_middle: int = 0
    rewritten: int = 0
    jumps: int = 0
    written_twice: int = 0
    dead: int = 0
    broken: str = ""


class QueryLives(Lives):
    """
    One query job and its lives, each with cores and a limit of its batches of its own.

    Args:
        stack: Kafka and Redis.
        space: Where it runs.
        script: File with what it computes.
        first: Name of the topic of its first output.
        dice: Draws cores and limits.
        limits: Most events of a batch, to be drawn from.
        flags: More flags of the command.

    Attributes:
        cores: How many lives had how many.
        spans: How many lives kept their batches open for how long.
    """

    def __init__(
        self, stack: EmbeddedStack, space: Workspace, script: str, first: str, dice: random.Random, limits: Sequence[int], *flags: str
    ) -> None:
        super().__init__(stack, space)
        self._script, self._first, self._dice, self._limits, self._flags = script, first, dice, limits, flags
        self.stall_s = STALL_S
        self.cores: Counter[int] = Counter()
        self.spans: Counter[str] = Counter()
        self._planned = -1

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.space.folder / ".tidegate" / "checkpoints" / f"query-{self._first}"

    def _begin(self, environment: dict[str, str]) -> Job:
        cores = self._dice.choice(CORES)
        self.cores[cores] += 1
        self._planned = Checkpoint(self.checkpoint).planned
        master = f"local[{cores}]" if self._dice.random() < 0.5 else f"local[{cores},4]"
        span, events_max = self._dice.choice(SPANS), self._dice.choice(self._limits)
        self.spans[span] += 1
        drawn = settings_of(spark__master=master, spark__trigger="0s", query__max_events_per_batch=events_max, query__batch_span=span)
        return self.space.start_alone("query", self._script, *self._flags, *drawn, **environment)

    def until_read(self, offsets: float, timeout_s: float) -> None:
        """Wait until this life has planned a batch of its own, and batches that go so far have been planned: a sum over all logs."""
        deadline_s = time.monotonic() + timeout_s
        while self.job.running and time.monotonic() < deadline_s:
            planned = Checkpoint(self.checkpoint).planned
            stored = read_offset(self.checkpoint, planned) if planned > self._planned else None
            if stored is not None and sum(self._read_to(QueryOffset.from_json(stored).positions).values()) >= offsets:
                return
            time.sleep(POLL_S)

    def _read_to(self, planned: Mapping[int, int]) -> dict[int, int]:
        """How far an open batch of this life has read beyond what was *planned*, by what its tasks have said."""
        reports = [BucketReport.of_json(file.read_text()) for file in self.checkpoint.glob("open_report_*.json")]
        opened = least_offsets(report for report in reports if report.open_batch > self._planned)
        return {log: max(offset, opened.get(log, 0)) for log, offset in planned.items()}

    @property
    def from_middle(self) -> bool:
        """Whether this life is the first and has begun behind the topic's beginning."""
        told = (json.loads(line).get("recovery", {}) for line in self.job.errors.splitlines() if line.startswith("{"))
        return any(each.get("how") == "start" and any(each["from"].values()) for each in told)

    def finish(self, timeout_s: float = END_S) -> None:
        """Wait until the job has ended by itself, starting it again where a fault has ended it."""
        deadline_s, before = time.monotonic() + timeout_s, len(self.ended)
        while True:
            if not self.job.running:
                if self.job.wait() == 0:
                    break
                # A fault may still be felt once or twice; nobody strikes any more.
                demand(len(self.ended) < before + FAILS_MAX, "no stall", f"it fails again and again: {self.job.errors[-2500:]}")
                self.revive()
            demand(time.monotonic() < deadline_s, "no stall", f"not finished in {timeout_s:g} s: {self.job.last} {self.job.errors[-2500:]}")
            self.release_or_held()  # whom a kill has missed goes on
            time.sleep(0.3)
        demand(bool(self.job.last.get("finished")), "no stall", f"it has ended before its input: {self.job.last}")


def draw_strike(dice: random.Random, *, first: bool) -> Kill:
    """Draw a kill of a query job: anywhere, at a named point in a task, at one between tasks, or, if it is not the first, in recovery."""
    kind, victim = dice.uniform(0, 0.9 if first else 1), dice.choice((SESSION, SESSION, DRIVER, JVM, WORKER))
    if kind < 0.4:
        return Kill(victim, wait_s=dice.uniform(0.0, 1.5))
    if kind < 0.75:
        return Kill(victim, dice.choice(POINTS), dice.randint(1, 4))
    if kind < 0.9:
        return Kill(dice.choice((SESSION, DRIVER, JVM)), dice.choice(WATCHED))
    return Kill(dice.choice((SESSION, DRIVER, JVM)), RECOVERY, dice.randint(1, 2), dice.uniform(1.0, 7.0))


@dataclass
class Asked:
    """One job of a round: what it is called, what it computes, and what it must write."""

    name: str
    script: str
    outputs: tuple[str, ...]
    told: Told
    start_us: int | None = None

    def topic(self, output: str) -> str:
        """What an output of it is called, in settings and in Kafka."""
        return f"{self.name}_{output}"

    def text(self) -> str:
        """The script with its outputs renamed after the job."""
        text = self.script
        for output in self.outputs:
            text = text.replace(f"INTO {output} ", f"INTO {self.topic(output)} ")
        return text


class QueryRound:
    """
    One round.

    Args:
        stack: Kafka and Redis.
        folder: The round's own.
        seed: Of everything that is drawn.
        kinds: What is computed.
        size: Records of each raw log.
        both: Whether a job without OVER runs beside the one with it; else one of the two alone is drawn.
    """

    def __init__(self, stack: EmbeddedStack, folder: Path, seed: int, kinds: Sequence[str], size: int, *, both: bool) -> None:
        self.stack, self.folder, self.dice = stack, folder, random.Random(seed)
        self.outcome = Round(seed, tuple(kinds))
        self._size, self._kinds = size, kinds
        overs = (True, False) if both else (self.dice.random() < 0.5,)
        self.raw, self.topic = self._drawn(over=any(overs) or self.dice.random() < 0.5)
        self.outcome.rewritten, self.outcome.jumps = faults_of(self.topic)
        self.typed = self.dice.random() < 0.5
        self.name = fresh("queries")
        self.jobs = [self._asked(over=over) for over in overs]
        self.later = [self._later(job) for job in self.jobs]
        self.space = Workspace(folder, stack, self._tables())

    def _drawn(self, *, over: bool) -> tuple[Raw, Topic]:
        """Draw an ordered topic that was written more than once."""
        while True:
            raw = dense(self.dice.randrange(2**32), self._size, start_us=START_US, tick_us=TICK_US)
            partitions = self.dice.choice((1, 2, 3)) if self._size <= SHORT else 1
            topic = raw.topic(self.dice.randrange(2**32), partitions, over=over, vouched=True)
            if faults_of(topic)[0]:
                return raw, topic

    def _asked(self, *, over: bool) -> Asked:
        # Plain Python knows no declared types.
        questions = {} if self.typed or (over and self._size > SHORT) else {name: Question(over, *span) for name, span in ASKED.items()}
        script = compose_scripts(self._kinds, over=over, asked=questions, unit=UNIT)
        outputs = (*(output for kind in self._kinds for output in outputs_of(kind)), *questions)
        expected = told(
            script,
            self.raw,
            self.topic,
            questions,
            over=over,
            typed=self.typed,
            second_us=START_US + 12 * TICK_US,
            other=self.dice.randrange(2**32),
        )
        return Asked("over" if over else "line", script, outputs, expected)

    def _later(self, job: Asked) -> Asked:
        """Return the same job begun at a random time."""
        instants = job.told.instants_us
        low, high = (0.2, 0.8) if self._size <= SHORT else (0.2, 0.35)
        start_us = self.dice.choice(instants[round(low * len(instants)) : round(high * len(instants))]) + self.dice.choice((-TICK_US, 0, 1))
        return Asked(f"{job.name}_later", job.script, job.outputs, job.told.since(start_us), start_us)

    def _tables(self) -> str:
        first, second = self.folder / "first.ndjson", self.folder / "second.ndjson"
        self.folder.mkdir(parents=True, exist_ok=True)
        for file, rows in ((first, FIRST), (second, SECOND)):
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        effective = {"2000-01-01T00:00:00Z": first, format_tick(START_US + 12 * TICK_US): second}
        tables = [input_table(self.name, over=self.topic.over, typed=self.typed), "[references.r.effective]"]
        tables[-1] += "".join(f'\n"{since}" = "{file}"' for since, file in effective.items())
        for job in (*self.jobs, *self.later):
            tables += [f'[outputs.{job.topic(output)}]\ntopic = "{self.name}.{job.topic(output)}"' for output in job.outputs]
        return "\n\n".join(tables) + "\n"

    def lives(self, job: Asked, limits: Sequence[int]) -> QueryLives:
        """Return the job, not yet started."""
        script = self.space.script(f"{job.name}.sql", job.text())
        flags = () if job.start_us is None else ("--start", format_tick(job.start_us))
        return QueryLives(self.stack, self.space, script, f"{self.name}.{job.topic(job.outputs[0])}", self.dice, limits, *flags)

    def play(self, kills: int, tell: Callable[[str], None]) -> None:
        """Play it: *kills* of each job, then the jobs that start later; check after each kill and in the end."""
        writer = Writer(self.stack.bootstrap, self.name, self.topic, len(self.jobs) * kills + 2)
        writer.write()
        lines = sum(map(len, self.topic.partitions)) // max(len(self.jobs) * kills, 1)
        limits = [max(lines // share, 1) for share in (1, 3, 8)]
        running = [(job, self.lives(job, limits)) for job in self.jobs]
        try:
            for _ in range(kills):
                for job, lives in running:
                    writer.write()
                    self._strike(job, lives, tell)
            writer.write()  # what ends the topic comes last: until then no job is done
            started = [(job, self.lives(job, LATER_LIMITS)) for job in self.later]
            for _, lives in started:
                lives.start()
            for job, lives in (*running, *started):
                if lives.lives == 0:
                    lives.start()
                lives.finish()
                tell(f"{job.name}: {self._check(job, whole=True):,} results")
            self.outcome.suffixes = len(started)
            self.outcome.from_middle = sum(lives.from_middle for _, lives in started)
            running += started
        finally:
            for _, lives in running:
                lives.close()
                self._count(lives)

    def _strike(self, job: Asked, lives: QueryLives, tell: Callable[[str], None]) -> None:
        kill = draw_strike(self.dice, first=lives.lives == 0)
        self._ready(lives, kill)
        hit = kill.strike(lives)
        self.outcome.struck[hit] += 1
        lives.arm = None
        lives.revive()
        compared = self._check(job, whole=False)
        self.outcome.compared_after_kills += compared
        self.outcome.midway += 0 < compared < job.told.count
        tell(f"{job.name}: {kill.name}{'' if hit in kill.name else f' ({hit})'}: {compared:,} results so far, ok")

    def _ready(self, lives: QueryLives, kill: Kill) -> None:
        """See that the job runs, armed where the kill wants that, and has read a share of what is there where it strikes anywhere."""
        lives.arm = kill.held_at
        if lives.lives and lives.job.running and (lives.armed or lives.arm is not None):
            slain(lives, SESSION)
        if lives.lives == 0 or not lives.job.running:
            lives.start()
        if kill.point in ("", *WATCHED):
            admin = Admin({"bootstrap.servers": self.stack.bootstrap})
            written = sum(admin.ends([(self.name, at) for at in range(len(self.topic.partitions))]).values())
            lives.until_read(self.dice.uniform(0.2, 0.95) * written, lives.patience_s)

    def _check(self, job: Asked, *, whole: bool) -> int:
        compared = 0
        for output in job.outputs:
            topic = f"{self.name}.{job.topic(output)}"
            if not whole and not exists(self.stack.bootstrap, topic):
                continue
            partitions = Admin({"bootstrap.servers": self.stack.bootstrap}).require(topic).partitions
            found = read_ordered(self.stack.bootstrap, topic, partitions)
            compared += check_results(output, found, job.told, whole=whole, from_start=job.start_us is not None)
            self.outcome.written_twice += found.duplicates if whole else 0
        if whole:
            self.outcome.compared += compared
            self._check_dead(job)
        return compared

    def _check_dead(self, job: Asked) -> None:
        """What was dead-lettered is what cannot be evaluated; of a job from the beginning nothing is missing."""
        topic = f"{self.name}.{job.topic(job.outputs[0])}.dead"
        found = {(message.value() or b"", header(message, "reason").decode()) for message in records(self.stack.bootstrap, topic)}
        demand(found <= job.told.dead, "dead letters", f"made up: {sorted(found - job.told.dead)[:3]}")
        if job.start_us is None:
            demand(found == job.told.dead, "dead letters", f"missing: {sorted(job.told.dead - found)[:3]}")
        self.outcome.dead += len(found)

    def _count(self, lives: QueryLives) -> None:
        self.outcome.kills.update(lives.kills)
        self.outcome.ended += lives.ended
        self.outcome.lives += lives.lives
        self.outcome.cores.update(lives.cores)
        self.outcome.spans.update(lives.spans)


def play_round(
    stack: EmbeddedStack,
    folder: Path,
    seed: int,
    kinds: Sequence[str],
    *,
    kills: int = KILLS_A_JOB,
    size: int = SHORT,
    both: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Round:
    """Play one round; a broken law ends it and is told by what is returned."""
    made = QueryRound(stack, folder, seed, kinds, size, both=both)
    try:
        made.play(kills, tell)
    except Exception as error:
        # Whatever a round brings to light, in the product or in the campaign, is told; the other rounds are played.
        made.outcome.broken = f"{type(error).__name__}: {error}"
    return made.outcome
