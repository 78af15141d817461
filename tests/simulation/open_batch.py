"""
An open batch in one simulated task: the rules of ``ingest/stage/open_batch.py`` and of what goes on between two batches.

Law: in each round the records that have come are closed in the journal first, which also tells the facts in force there; then they are
judged and their events written, and once these are acknowledged the CTIs above them. What is closed and estimated is noted before it has
an effect. What goes on after the batch does the same, makes no estimates and saves nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from simulation.checkpoint import Planned
from simulation.clock import MonotonicClock
from simulation.estimating import Estimates, own_reports
from simulation.journaling import JournalClient
from simulation.stage import Task
from simulation.world import RawRecord, journal_key
from support.journals import estimate_many

from ingest.planner.stage_progress import StageProgress
from ordering.errors import UnreachableError

Steps = Iterator[str]


@dataclass(slots=True)
class OpenRange:
    """As ``ingest.stage.open_batch.OpenRange``: since when its arrival frontier is known, and the estimate in force there."""

    seen_us: int = 0
    estimated_us: int = 0
    frontier_us: int = 0
    lost_answer: bool = False


class OpenTask(Task):
    """A task that may stay open, and go on after its batch; :meth:`prepare` it."""

    _clock: MonotonicClock
    _range: OpenRange
    is_waiting = False
    """Whether nothing has come in its last round."""
    is_over = False
    """Whether what goes on after the batch is to end."""
    has_notes = False
    """Whether what is closed can be noted."""
    is_ended = False
    """Whether it has ended, or its process has died."""

    def prepare(self, clock: MonotonicClock) -> None:
        """Give it the clock of its machine."""
        self._clock, self._range = clock, OpenRange()

    def goes_on(self) -> bool:
        """See :class:`simulation.checkpoint.Fellow`."""
        return not self.is_ended

    def report(self) -> StageProgress:
        """Return how far it has come."""
        told = super().report()
        if not self.assigned.is_open:
            return told
        one = self._range
        return replace(
            told, open_batch=self.assigned.batch, seen_us=one.seen_us, estimated_us=one.estimated_us, lost_answer=one.lost_answer
        )

    def stay_open(self) -> Steps:
        """Go on in rounds until the batch ends."""
        world = self._world
        world.happened["open batch of a task"] += 1
        self._begin_rounds()
        if not self._checkpoint.begin_notes(self.assigned.batch, self.number):
            # What the attempt before it has noted is the planner's to read.
            world.happened["open batch ended by a task that is repeated"] += 1
            self._checkpoint.end_request += 1
            return
        self.has_notes = True
        until_us = world.time.now_us + self.assigned.span_us
        journal = self._journal()
        estimates = Estimates(world, self._clock, journal, self._read_reports, self._broken, "open: ")
        if "open batches use facts before they are durable" in self._broken:
            estimates.use_first = self._use
        self._observe(estimates)
        yield "batch stays open"
        while world.time.now_us < until_us and self._checkpoint.end_request == self.assigned.end_request:
            records = self._read()
            self.is_waiting = not records
            yield "looked for records"
            if records:
                is_closed = yield from self._round(records)
                if not is_closed:
                    break
                self._observe(estimates)
            raised = yield from self._raise_silent(estimates)
            if records or raised:
                yield from self._publish_round()
            elif "open batches are saved past what was written" in self._broken:
                self.producer.trickle()
            if raised is None:
                break
        self.is_waiting = False
        self._checkpoint.end_request += 1

    def go_on(self) -> Steps:
        """Go on after the batch until it is ended from outside, or for a while."""
        world, chance = self._world, self._world.chance
        world.happened["goes on between batches"] += 1
        left, until_us = chance.choice([2, 4, 8, 16]), world.time.now_us + world.settings.cadence_us
        while left > 0 and world.time.now_us < until_us and not self.is_over:
            left -= 1
            records = self._read()
            yield "between: looked for records"
            if records:
                is_closed = yield from self._round(records, "between: ")
                if not is_closed:
                    break
                yield from self._publish_round("between: ")
        self.is_ended = True

    def _begin_rounds(self) -> None:
        marks = self._until.all_marks()
        frontier_us = marks[-1][1] if marks and marks[-1][0] == self.state.next_offset else 0
        self._range = OpenRange(estimated_us=self._clock(), frontier_us=frontier_us)

    def _journal(self) -> JournalClient:
        if self.memory.journal is None:
            self.memory.journal = JournalClient(self._world, None, self._broken)
        return self.memory.journal

    def _reach(self) -> None:
        assert self.memory.journal is not None, "an open batch has a client"
        self.memory.journal.reach({self.number: self.state.next_offset})

    def _read(self) -> list[RawRecord]:
        """Return what has come."""
        if self._world.broker_away:
            return []
        raw = self._world.raw[self.number]
        records = raw.read(self.state.next_offset, raw.visible_end(committed=True))
        return records[: self._chance.choice([1, 3, 20, 1000])]

    def _round(self, records: list[RawRecord], by: str = "open: ") -> Generator[str, None, bool]:
        """Close the records in the journal, then judge them; return whether they were closed for certain."""
        world, journal = self._world, self.memory.journal
        start, end = self.state.next_offset, records[-1].offset + 1
        is_early = "open batches judge before they close" in self._broken
        closed = Planned(end)
        if is_early:
            self._judge_round(records, closed)
        try:
            assert journal is not None, "an open batch has a client"
            self._reach()
            if not journal.is_connected:
                raise UnreachableError("the journal does not answer", where="journal", fix="wait")
            if start >= world.closed_to[self.number] and journal.is_answered and not world.scenario.honest and self._chance.random() < 0.2:
                # The journal is all jobs': another one, which saw no record here yet, has made an estimate, by a clock that is ahead.
                estimate_many(world.journal.facts, [(journal_key(self.number), start, world.time.now_us + world.settings.cadence_us)])
                world.happened["estimate of another job"] += 1
            marks = journal.close_range(self.number, start, end)
            world.closed_to[self.number] = max(end, world.closed_to[self.number])
            yield f"{by}positions closed"
        except UnreachableError:
            self.memory.journal = None
            world.happened["open batch ended without the journal"] += 1
            return False
        closed = Planned(end, marks=tuple(marks))
        self._note(closed)
        yield f"{by}noted"
        if not is_early:
            self._judge_round(records, closed)
        yield f"{by}round judged"
        self.producer.trickle()
        return True

    def _note(self, end: Planned) -> None:
        if "what stages close is not noted" not in self._broken:
            self._checkpoint.note(self.assigned.batch, self.number, end)

    def _judge_round(self, records: list[RawRecord], end: Planned) -> None:
        self._planned_us = self._world.time.now_us
        self._begin_range(end)
        while records:
            size = self._chance.randint(1, self._world.settings.piece_events)
            self._judge(records[:size])
            records = records[size:]
        self._end_range()
        self._range = OpenRange(seen_us=self._clock())
        self._world.happened["open round"] += 1

    def _raise_silent(self, estimates: Estimates) -> Generator[str, None, bool | None]:
        """Make the estimate that is due; return whether there was one, None if the batch must end."""
        world = self._world
        if not world.settings.estimates:
            return False
        here = Planned(self.state.next_offset, self._range.frontier_us)
        try:
            yield from estimates.raise_silent({self.number: here}, self._clock(), self._reach, {})
        except UnreachableError:
            estimates.raised = {}
        journal = self.memory.journal
        self._range.lost_answer = journal is not None and self.number in journal.unsure
        raised = estimates.raised.get(self.number)
        if raised is None:
            is_emptied = journal is not None and journal.is_emptied
            if is_emptied:
                self.memory.journal = None
            return None if is_emptied or world.broker_away else False
        self._note(raised)
        self._use(raised)
        world.happened["estimate of an open batch"] += 1
        return True

    def _use(self, raised: Planned) -> None:
        """Raise the arrival frontier."""
        self._begin_range(raised)
        self._end_range()
        self._range = OpenRange(estimated_us=self._clock(), frontier_us=raised.frontier_us)

    def _publish_round(self, by: str = "open: ") -> Steps:
        if "open batches promise at once" in self._broken:
            self._write_ctis()
            self.own_way.trickle()
            yield f"{by}CTIs sent"
        if "open batches are saved past what was written" in self._broken:
            self._write_ctis()
            self.producer.trickle()
            return
        yield from self.publish(f"{by}events acknowledged", f"{by}CTIs sent", f"{by}CTIs acknowledged")

    def _observe(self, estimates: Estimates) -> None:
        """Let the silence begin where the range stands: what lies below was there before the clock was read."""
        estimates.observe_ends({self.number: self.state.next_offset}, self._clock())

    def _read_reports(self) -> dict[int, StageProgress]:
        others = own_reports(self._checkpoint, self._clock.boot, self._broken)
        return {**others, self.number: self.report()}
