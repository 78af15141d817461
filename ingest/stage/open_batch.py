"""
An open batch in one task: the walks of its ranges go on beyond their planned ends.

Law: in each round the records that have come are closed in the journal first, which also tells the facts in force there; then they are
judged and their events written; and only once these are acknowledged do the CTIs above them follow. A round is a range that the stage plans
itself, so the events are those of any other cut. Without the journal no record is judged: the batch ends, and the planner decides.

While a partition is silent and its silence may advance time, the task makes its estimates, by the rules of the planner
(:mod:`ingest.planner.idle_estimates`). An estimate too is a range that the stage plans itself: an empty one.

What is closed and estimated is noted for the planner before it has an effect (:mod:`ingest.journal.stage_notes`). The stage gives a journal
that was emptied nothing back, since it knows some facts only.

The batch ends when its span is over, when its end is requested (:mod:`tidegate.platform.checkpoint.open_batches`), or when the journal or
the brokers do not answer. A task that ends requests the end of the others, so none waits for another. While Spark commits it, the same
rounds go on without estimates (:mod:`tidegate.platform.checkpoint.between_batches`). A task that is repeated ends its batch at once: what
the attempt before it has noted is the planner's to read.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from ingest.config import IngestPlan, Partition
from ingest.journal.client import JournalClient
from ingest.journal.stage_notes import StageNote, StageNotes
from ingest.offsets import PlannedPosition
from ingest.planned_range import IngestRange
from ingest.planner.idle_estimates import IdleEstimates
from ingest.planner.silences import boot_id, boottime_us
from ingest.planner.stage_progress import StageProgress, read_stage_progress
from ingest.stage.memory import JobMemory
from ingest.stage.range_walk import RangeWalk
from ordering.errors import TidegateError
from ordering.protocol.punctuation import Cti
from ordering.ticks import SECOND_US
from tidegate.basics.fault_points import pause_at
from tidegate.platform.checkpoint.open_batches import is_stopping, read_request, request_end
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.kafka.ranges import Records, wait_for_any
from tidegate.platform.observe.detail_requests import WATCHED_EVERY_S
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.spark.launch.allocator import freed_memory

# How long records are waited for, milliseconds; and between two batches, where the next one waits for the end of the round.
_WAIT_MS, _SHORT_WAIT_MS = 100, 5
# How often requests and silences are looked for, seconds.
_LOOK_EVERY_S = 0.02
# A round lasts so long for each CTI that the last one wrote, but not longer than _ROUND_MAX_S: CTIs cost their readers too.
_ROUND_OF_CTI_S, _ROUND_MAX_S = 0.001, 0.05
# If ingest stamps records, a round lasts so long at least, seconds: the journal keeps a stamp for each as long as its records.
_ROUND_OF_STAMP_S = 0.1
_TELL_EVERY_S = 1.0

_log = get_logger("ingest.stage")


@dataclass(slots=True)
class OpenRange:
    """A range whose planned part was walked; *save* saves its state."""

    planned: IngestRange
    walk: RangeWalk
    save: Callable[[], None]
    # The clock for durations when its arrival frontier was known to be reached, microseconds: after the last record was read beyond the
    # planned part, or else after the last estimate. The other one is 0.
    seen_us: int = 0
    estimated_us: int = 0
    # The estimate in force where it stands; 0: none is known.
    frontier_us: int = 0
    # Whether the journal may have an estimate there whose answer was lost.
    lost_answer: bool = False

    @property
    def place(self) -> Partition:
        """The input partition."""
        return self.planned.topic, self.planned.partition

    @property
    def position(self) -> PlannedPosition:
        """Where it stands."""
        return PlannedPosition(self.walk.next_offset, self.frontier_us)

    def open(self) -> None:
        """Go on beyond the planned part."""
        self.estimated_us = boottime_us()
        marks = self.planned.marks
        self.frontier_us = marks[-1][1] if marks and marks[-1][0] == self.walk.next_offset else 0

    def read(self) -> Records | None:
        """Return the records that have come, None if there are none."""
        return self.walk.reader(self.planned).read_on(self.walk.next_offset, 0)

    def judge(self, records: Records, end: PlannedPosition) -> None:
        """Judge *records* up to *end*."""
        self.walk.go_on(records, end)
        self.seen_us, self.estimated_us, self.frontier_us = boottime_us(), 0, 0

    def estimate(self, end: PlannedPosition) -> None:
        """Raise the arrival frontier to that of *end*."""
        self.walk.go_on(None, end)
        self.seen_us, self.estimated_us, self.frontier_us = 0, boottime_us(), end.frontier_us

    def report(self, report: IngestReport, batch: int) -> IngestReport:
        """Return the *report* of its walk as one of an open *batch*."""
        return replace(
            report,
            open_batch=batch,
            seen_us=self.seen_us,
            estimated_us=self.estimated_us,
            boot_id=boot_id(),
            lost_answer=self.lost_answer,
        )


Piece = tuple[OpenRange, Records]


class OpenBatch:
    """
    The open ranges of one task.

    Args:
        batch: The number of Spark's batch.
        publish: Waits until all events are acknowledged, then writes CTIs and waits for them.
        tell: Tells the driver how far a range has come; called about once a second, and four times while a client watches.
        is_watched: Returns whether one does.
    """

    def __init__(
        self,
        plan: IngestPlan,
        ranges: Sequence[OpenRange],
        batch: int,
        publish: Callable[[list[Cti]], None],
        tell: Callable[[OpenRange], None] = lambda _: None,
        is_watched: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan, self._ranges, self._publish, self._tell, self._is_watched = plan, ranges, publish, tell, is_watched
        self._folder = Path(plan.checkpoint)
        self._memory = memory = JobMemory.of(plan)
        self._span = memory.spans.take(plan.settings.batch_span_us / SECOND_US, time.monotonic())
        self._has_read = any(opened.planned.end > opened.planned.start for opened in ranges)
        admin = memory.admin = memory.admin or Admin(plan.kafka, ANSWER_S)
        self._journal = memory.journal = memory.journal or _open_journal(plan, admin)
        self._notes = _begin_notes(self._folder, batch, ranges[0].planned.number)
        self._estimates = IdleEstimates(plan, admin, self._journal, _log, self._read_progress)
        self._parent = os.getppid()
        self._looked_s, self._silences_s, self._told_s, self._tell_every_s = 0.0, 0.0, time.monotonic(), _TELL_EVERY_S
        self._is_asked = False
        # How long the present round takes at least, seconds.
        self._round_s = self._round_min_s = _ROUND_OF_STAMP_S if plan.settings.arrival == "ingest" else 0.0

    def run(self) -> None:
        """Go on until the batch ends. Raises TidegateError as a walk does."""
        for opened in self._ranges:
            opened.open()
        self._observe(self._ranges)
        try:
            self._write_ctis()
            while self._notes is not None and not self._is_over(time.monotonic()):
                pieces, read_s = self._read(_WAIT_MS), time.monotonic()
                self._has_read |= bool(pieces)
                if not self._judge(pieces):
                    break
                if self._raise_silent() or pieces:
                    self._end_round(read_s)
        finally:
            request_end(self._folder)

    @property
    def may_go_on(self) -> bool:
        """Whether the rounds may go on after the end: the journal answers, and what is closed can be noted."""
        return self._memory.journal is not None and self._notes is not None

    def go_on(self, is_over: Callable[[], bool]) -> None:
        """Go on after the end of the batch until *is_over*, or until there is a reason why no batch would stay open."""
        self._looked_s, is_closed = 0.0, True
        while is_closed and not (is_over() or self._is_stopped(time.monotonic()) or any(opened.walk.is_full for opened in self._ranges)):
            pieces, read_s = self._read(_SHORT_WAIT_MS), time.monotonic()
            if pieces:
                is_closed = self._judge(pieces)
                self._end_round(read_s)

    def _end_round(self, read_s: float) -> None:
        time.sleep(max(self._round_s - (time.monotonic() - read_s), 0))
        self._write_ctis()

    def _is_stopped(self, now_s: float) -> bool:
        """Return whether the job is to stop; look for it from time to time."""
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s, self._is_asked = now_s, is_stopping(self._folder)
            if os.getppid() != self._parent:
                raise TidegateError("Spark has gone: nobody would commit what this worker writes", code="TG-SPARK-GONE")
        return self._is_asked

    def _is_over(self, now_s: float) -> bool:
        if self._span.is_over(now_s, has_read=self._has_read):
            return True
        if now_s - self._looked_s >= _LOOK_EVERY_S and not self._is_stopped(now_s):
            self._is_asked = read_request(self._folder) != self._ranges[0].planned.end_request
            self._tell_every_s = WATCHED_EVERY_S if self._is_watched() else _TELL_EVERY_S
        if now_s - self._told_s >= self._tell_every_s:
            self._told_s = now_s
            for opened in self._ranges:
                self._tell(opened)
            # The cycle collector is off while rows are handled.
            gc.collect(0)
            freed_memory().give_back_in_silence(now_s, time.process_time())
        return self._is_asked

    def _read(self, wait_ms: int) -> list[Piece]:
        """Return what has come; if nothing has, wait a while for some of it."""
        pieces = self._read_ranges()
        if not pieces:
            wait_for_any([opened.walk.reader(opened.planned) for opened in self._ranges], wait_ms)
            pieces = self._read_ranges()
        return pieces

    def _read_ranges(self) -> list[Piece]:
        read = [(opened, opened.read()) for opened in self._ranges]
        return [(opened, records) for opened, records in read if records is not None]

    def _judge(self, pieces: Sequence[Piece]) -> bool:
        """Close the records in the journal, then judge them; return False if the journal has not closed all: the batch must end."""
        if not pieces:
            return True
        starts = {opened.place: opened.walk.next_offset for opened, _ in pieces}
        ends = {opened.place: int(records.offset[-1]) + 1 for opened, records in pieces}
        closed = self._close(starts, ends)
        pause_at("open piece closed")
        self._note(StageNote(place, starts[place], end) for place, end in closed.items())
        for opened, records in pieces:
            if opened.place in closed:
                opened.judge(records, closed[opened.place])
        self._observe([opened for opened, _ in pieces])
        return len(closed) == len(pieces)

    def _note(self, notes: Iterable[StageNote]) -> None:
        assert self._notes is not None, "without notes no round is made"
        self._notes.add(notes)

    def _observe(self, ranges: Sequence[OpenRange]) -> None:
        """Let silences begin where *ranges* stand: what lies below was there before the clock was read."""
        positions, now_us = {opened.place: opened.walk.next_offset for opened in ranges}, boottime_us()
        self._estimates.observe_ends(positions, now_us)
        self._estimates.observe_planned(positions, now_us)

    def _raise_silent(self) -> bool:
        """Make the estimates that are due; return whether there were any."""
        now_s = time.monotonic()
        if now_s - self._silences_s < _LOOK_EVERY_S:
            return False
        self._silences_s = now_s
        positions = {opened.place: opened.position for opened in self._ranges}
        self._journal.move_to(positions)
        try:
            raised = self._estimates.raise_silent(positions, boottime_us())
        except (KafkaException, TidegateError) as error:
            _log.warning("an open batch ends: nobody says whether its partitions are silent", reason=str(error))
            request_end(self._folder)
            return False
        if self._journal.is_emptied:
            self._memory.journal = None
            _log.warning("an open batch ends: the journal has lost facts")
            request_end(self._folder)
        self._note(StageNote(place, end.next_offset, end) for place, end in raised.items())
        for opened in self._ranges:
            opened.lost_answer = self._journal.has_lost_answer(opened.place)
            if opened.place in raised:
                opened.estimate(raised[opened.place])
        return bool(raised)

    def _read_progress(self) -> dict[Partition, StageProgress]:
        """Return how far all ranges have come: those of other tasks up to their last batch."""
        own = {opened.place: StageProgress.of_report(opened.report(opened.walk.report(), -1)) for opened in self._ranges}
        return read_stage_progress(self._folder) | own

    def _close(self, starts: dict[Partition, int], ends: dict[Partition, int]) -> dict[Partition, PlannedPosition]:
        """Close ranges in the journal; return the ends, with their facts, of those that are closed for certain."""
        self._journal.move_to({opened.place: opened.position for opened in self._ranges})
        self._journal.observe_records(ends)
        closed = self._journal.close_ranges(starts, ends) if self._journal.is_available() else {}
        # Without the journal's planning times the wall clock would count, which a replay cannot repeat.
        certain = {partition: end for partition, end in closed.items() if end.spans and not end.is_unclosed}
        if len(certain) < len(starts):
            self._memory.journal = None
            _log.warning("an open batch ends: the journal does not answer")
        return certain

    def _write_ctis(self) -> None:
        """Write the CTIs that are due; how many there were says how long the next round takes."""
        ctis = [cti for opened in self._ranges for cti in opened.walk.pop_ctis(is_last=True)]
        self._publish(ctis)
        self._round_s = max(min(len(ctis) * _ROUND_OF_CTI_S, _ROUND_MAX_S), self._round_min_s)


def _begin_notes(folder: Path, batch: int, number: int) -> StageNotes | None:
    """Return the notes of a task; None if an attempt before it has begun some."""
    try:
        return StageNotes(folder, batch, number)
    except FileExistsError:
        return None


def _open_journal(plan: IngestPlan, admin: Admin) -> JournalClient:
    # Records that the journal has not closed are the planner's to plan: it tells Spark's offset of them.
    pausing = replace(plan, settings=plan.settings.model_copy(update={"journal_outage": "pause"}))
    return JournalClient(pausing, _log, partial(admin.ends, committed=False))
