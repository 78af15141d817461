"""
An open batch in one task: the walks of its ranges go on beyond their planned ends.

Law: in each round the records that have come are closed in the journal first, which also tells the facts in force there; then they are
judged and their events written; and only once these are acknowledged do the CTIs above them follow. A round is a range that the stage plans
itself, so the events are those of any other cut. Without the journal no record is judged: the batch ends, and the planner decides.

The batch ends when its span is over, or somebody asks for it (:mod:`ingest.open_batches`). It also ends when a partition is silent whose
silence advances time, because only the planner makes estimates. A task that ends asks for the end of the others: none waits for it longer.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from ingest.config import IngestPlan, Partition
from ingest.journal.client import JournalClient
from ingest.offsets import PlannedPosition
from ingest.open_batches import is_stopping, read_request, request_end
from ingest.planned_range import IngestRange
from ingest.planner.silences import boottime_us
from ingest.stage.memory import JobMemory
from ordering.errors import TidegateError
from ordering.protocol.punctuation import Cti
from ordering.ticks import SECOND_US
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.kafka.ranges import RangeReader, Records
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.reports import IngestReport

# How long one reader waits for records, milliseconds: the only one of a task, or each of several in turn.
_WAIT_MS, _WAIT_IN_TURN_MS = 100, 5
# How often requests are looked for, seconds.
_LOOK_EVERY_S = 0.02
# A round lasts so long for each CTI that the last one wrote, but not longer than _ROUND_MAX_S: CTIs cost their readers too.
_ROUND_OF_CTI_S, _ROUND_MAX_S = 0.001, 0.05
_TELL_EVERY_S = 1.0

_log = get_logger("ingest.stage")


class Walk(Protocol):
    """What an open batch needs of the walk of a range (:class:`~ingest.stage.range_walk.RangeWalk`)."""

    ctis: list[Cti]

    @property
    def next_offset(self) -> int: ...
    def reader(self, planned: IngestRange) -> RangeReader: ...
    def go_on(self, records: Records, end: PlannedPosition) -> None: ...
    def pop_ctis(self, *, is_last: bool) -> list[Cti]: ...
    def finish(self, substreams: int | None = None) -> IngestReport: ...
    def report(self, substreams: int | None = None) -> IngestReport: ...


@dataclass(slots=True)
class OpenRange:
    """A range whose planned part was walked; *save* saves its state."""

    planned: IngestRange
    walk: Walk
    save: Callable[[], None]
    # The clock for durations after its last record was read beyond the planned part, microseconds; 0: none was.
    seen_us: int = 0
    # Since when it is silent, by the monotonic clock.
    silent_since_s: float = 0.0

    @property
    def place(self) -> Partition:
        """The input partition."""
        return self.planned.topic, self.planned.partition

    def read(self, wait_ms: int) -> Records | None:
        """Return the records that come within *wait_ms*, None if there are none."""
        records = self.walk.reader(self.planned).read_on(self.walk.next_offset, wait_ms)
        if records is not None:
            self.seen_us, self.silent_since_s = boottime_us(), time.monotonic()
        return records


Piece = tuple[OpenRange, Records]


class OpenBatch:
    """
    The open ranges of one task.

    Args:
        publish: Waits until all events are acknowledged, then writes CTIs and waits for them.
        tell: Tells the driver how far a range has come; called about once a second.
    """

    def __init__(
        self,
        plan: IngestPlan,
        ranges: Sequence[OpenRange],
        publish: Callable[[list[Cti]], None],
        tell: Callable[[OpenRange], None] = lambda _: None,
    ) -> None:
        self._plan, self._ranges, self._publish, self._tell = plan, ranges, publish, tell
        self._folder = Path(plan.checkpoint)
        settings = plan.settings
        self._span_s, self._silence_s = settings.batch_span_us / SECOND_US, settings.idle_cadence_us / SECOND_US
        has_estimates = settings.policies().late_us is not None
        self._heard = [opened for opened in ranges if has_estimates and opened.planned.topic in plan.estimates]
        self._wait_ms = _WAIT_MS if len(ranges) == 1 else _WAIT_IN_TURN_MS
        self._turn = 0
        self._parent = os.getppid()
        self._looked_s, self._told_s = 0.0, time.monotonic()
        self._is_asked = False

    def run(self) -> None:
        """Go on until the batch ends. Raises TidegateError as a walk does."""
        began_s = time.monotonic()
        for opened in self._ranges:
            opened.silent_since_s = began_s
        try:
            round_s = self._write_ctis()
            while not self._is_over(time.monotonic(), began_s):
                pieces = self._read()
                if not pieces:
                    continue
                if not self._judge(pieces):
                    break
                time.sleep(max(round_s - (time.monotonic() - pieces[0][0].silent_since_s), 0))
                round_s = self._write_ctis()
        finally:
            request_end(self._folder)

    def _is_over(self, now_s: float, began_s: float) -> bool:
        if now_s - began_s >= self._span_s:
            return True
        if any(now_s - opened.silent_since_s >= self._silence_s for opened in self._heard):
            return True
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            self._is_asked = read_request(self._folder) != self._ranges[0].planned.end_request or is_stopping(self._folder)
            if os.getppid() != self._parent:
                raise TidegateError("Spark has gone: nobody would commit what this worker writes", code="TG-SPARK-GONE")
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            for opened in self._ranges:
                self._tell(opened)
            # The cycle collector is off while rows are handled.
            gc.collect(0)
        return self._is_asked

    def _read(self) -> list[Piece]:
        """Return what has come; if nothing has, wait for one of the ranges."""
        if len(self._ranges) > 1:
            pieces = [(opened, records) for opened in self._ranges if (records := opened.read(0)) is not None]
            if pieces:
                return pieces
        self._turn = (self._turn + 1) % len(self._ranges)
        opened = self._ranges[self._turn]
        records = opened.read(self._wait_ms)
        return [] if records is None else [(opened, records)]

    def _judge(self, pieces: Sequence[Piece]) -> bool:
        """Close the records in the journal, then judge them; return False if the journal has not closed all: the batch must end."""
        ends = {opened.place: int(records.offset[-1]) + 1 for opened, records in pieces}
        closed = self._close({opened.place: opened.walk.next_offset for opened, _ in pieces}, ends)
        for opened, records in pieces:
            if opened.place in closed:
                opened.walk.go_on(records, closed[opened.place])
        return len(closed) == len(pieces)

    def _close(self, starts: dict[Partition, int], ends: dict[Partition, int]) -> dict[Partition, PlannedPosition]:
        """Close ranges in the journal; return the ends, with their facts, of those that are closed for certain."""
        memory = JobMemory.of(self._plan)
        journal = memory.journal = memory.journal or _open_journal(self._plan)
        journal.move_to({opened.place: PlannedPosition(opened.walk.next_offset) for opened in self._ranges})
        journal.observe_records(ends)
        closed = journal.close_ranges(starts, ends) if journal.is_available() else {}
        # Without the journal's planning times the wall clock would count, which a replay cannot repeat.
        certain = {partition: end for partition, end in closed.items() if end.spans and not end.is_unclosed}
        if len(certain) < len(starts):
            memory.journal = None
            _log.warning("an open batch ends: the journal does not answer")
        return certain

    def _write_ctis(self) -> float:
        """Write the CTIs that are due; return how long the next round may take at least, seconds."""
        ctis = [cti for opened in self._ranges for cti in opened.walk.pop_ctis(is_last=True)]
        self._publish(ctis)
        return min(len(ctis) * _ROUND_OF_CTI_S, _ROUND_MAX_S)


def _open_journal(plan: IngestPlan) -> JournalClient:
    # Records that the journal has not closed are the planner's to plan: it tells Spark's offset of them.
    pausing = replace(plan, settings=plan.settings.model_copy(update={"journal_outage": "pause"}))
    return JournalClient(pausing, _log, partial(Admin(plan.kafka, ANSWER_S).ends, committed=False))
