"""
The walk over a range of one input partition, from Kafka to Kafka: records are read in pieces, judged and written, up to the range's end.

Law: a range that is walked again writes the same bytes with the same numbers. Where it is cut into pieces, or goes on while the batch stays
open, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingest.config import IngestPlan
from ingest.offsets import PlannedPosition
from ingest.planned_range import IngestRange, RangeMarks
from ingest.planner.arrival_stamps import PlanningTimes
from ingest.skips import read_parts, read_unskipped
from ingest.stage.earlier_attempt import read_earlier_attempt
from ingest.stage.fact_outbox import FactOutbox, range_facts
from ingest.stage.judging import RecordJudge
from ingest.stage.letters import send_dead_letter, send_dropped
from ingest.stage.memory import JobMemory
from ingest.stage.range_output import RangeOutput
from ingest.stage.range_tally import RangeTally
from ordering.model.events import Dropped
from ordering.model.state import State
from ordering.model.step import Batch, Model
from ordering.protocol.punctuation import Cti
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.basics.fault_points import pause_at
from tidegate.platform.kafka.ranges import CHUNK_EVENTS, RangeReader
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.worker import WORKER
from tidegate.platform.kafka.writer import GaplessProducer
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.observe.time_jumps import EFFECTS, find_time_jumps
from tidegate.records.fields import FieldReader

_log = get_logger("ingest.stage")


class RangeWalk(RecordJudge):
    """One range of one input partition, from Kafka to Kafka; its last CTIs are left in ``ctis``."""

    def __init__(
        self,
        plan: IngestPlan,
        model: Model,
        state: State,
        fields: FieldReader,
        producer: GaplessProducer,
        save: Callable[[], None] = lambda: None,
        tally: RangeTally | None = None,
    ) -> None:
        super().__init__(plan, model, state, fields)
        self._save = save
        self.tally = tally or RangeTally(plan.settings.places)
        self.tally.add_wait(JobMemory.of(plan).pop_wait())
        self._output = RangeOutput(plan.settings, model.generation, producer, self.tally.spend)
        self.ctis: list[Cti] = []

    def is_of(self, state: State) -> bool:
        """Return whether this walk changes that very *state*."""
        return self._state is state

    @property
    def is_full(self) -> bool:
        """Whether the state should be saved before more is judged, so that memory is bounded."""
        return self._state.unsaved_bytes >= self._plan.settings.max_bytes_per_batch // self._plan.tasks

    def save_no_more(self) -> None:
        """Go on without saving the state: the batch has ended."""
        self._save = lambda: None

    @property
    def next_offset(self) -> int:
        """All records below this offset were judged."""
        return self._places.offset_of(self._state.next_offset)

    def run(self, planned: IngestRange, substreams: int | None = None) -> IngestReport:
        """Walk the range; return the report, with details of up to *substreams* substreams (None: without details)."""
        self.walk(planned)
        return self.finish(substreams)

    def walk(self, planned: IngestRange) -> None:
        """Walk the range from where the state stands: an open batch may have gone on beyond the offset that Spark has logged."""
        end = planned.end
        start = min(max(planned.start, self.next_offset), end)
        marks = self._begin_range(planned, is_first=self._state.last_promise is None)
        self._note_skips(replace(planned, start=start))
        if end > start:
            for records in read_unskipped(self.reader(planned), start, end, planned.skips, CHUNK_EVENTS):
                self.tally.spend("read")
                self.tally.add_records(records)
                pause_at("piece read")
                self.judge(planned.topic, planned.partition, records, marks)
        self._end_range(end, marks, is_final=planned.is_final, joins=planned.joins)
        self._output.write_compared(self._state.seq)

    def go_on(self, records: Records | None, end: PlannedPosition) -> None:
        """
        Judge *records*, the next ones, in a range of their own up to *end*, which has its facts: the journal has closed it. Without records
        the range is empty, and its facts are in the journal.
        """
        self.tally.start_clock()
        piece = replace(self._planned, start=self.next_offset, skips=(), **end.range_fields())
        marks = self._begin_range(piece, is_first=False)
        pause_at("open piece noted")
        if records is not None:
            self.tally.add_records(records)
            self.judge(piece.topic, piece.partition, records, marks)
        self._end_range(piece.end, marks)

    def finish(self, substreams: int | None = None) -> IngestReport:
        """Leave the last CTIs in ``ctis``; return the report, with details of up to *substreams* substreams (None: without details)."""
        self.ctis = self.pop_ctis(is_last=True)
        self.tally.spend("write")
        return self.report(substreams)

    def report(self, substreams: int | None = None) -> IngestReport:
        """Return how far the walk has come, with details of up to *substreams* substreams (None: without details)."""
        return self.tally.report(self._planned, self._model, self._state, substreams)

    def pop_ctis(self, *, is_last: bool) -> list[Cti]:
        """Return the waiting CTIs with their facts."""
        return self._output.pop_ctis(is_last=is_last)

    def reader(self, planned: IngestRange) -> RangeReader:
        """Return this process's reader of the range's partition."""
        settings = self._plan.settings
        raw = planned.topic, planned.partition, settings.source_ctis, self._plan.prefetch_bytes, settings.headers
        return WORKER.reader(self._plan.kafka, *raw)

    def _begin_range(self, planned: IngestRange, *, is_first: bool) -> RangeMarks:
        """Put the facts of a range in force, and return its marks; *is_first*: no CTI has carried those in force at its start."""
        kind, self._planned = self._plan.settings.planning_kind, planned
        self._planning_times = PlanningTimes(kind, planned.spans, planned.planned_ms, self._plan.arrival_max_ahead_us)
        self._output.outbox = FactOutbox(self._model, self._state, range_facts(planned, kind, is_first=is_first))
        self._add("journal_conflicts", planned.conflicts)
        self._add("journal_losses", planned.losses)
        self._add("planning_times_clamped", planned.clamped)
        return RangeMarks(planned.marks, planned.imports).at(self._places)

    def _end_range(self, end: int, marks: RangeMarks, *, is_final: bool = False, joins: bool = False) -> None:
        """Bring the state to the *end* of a range, which may have offsets without usable records, and facts that take effect there."""
        last = max(self._places.place_of(end), self._state.next_offset)
        remaining = marks.between(self._state.next_offset, last)
        batch = self._model.time_only_batch(last, remaining.estimates, remaining.imports, is_final)
        if batch.estimates or batch.imports or batch.finish or joins or self._state.next_offset != last:
            self._step(batch)

    def _note_skips(self, planned: IngestRange) -> None:
        if planned.compare_until:
            self._output.earlier = read_earlier_attempt(self._plan, planned)
        count = planned.end - planned.start - sum(last - first for first, last in read_parts(planned.start, planned.end, planned.skips))
        if count:
            self._add("skipped", count)
            _log.warning("offsets are skipped: tidegate skip shows why", skipped=count, skips=[list(span) for span in planned.skips])

    def judge(self, topic: str, partition: int, records: Records, marks: RangeMarks) -> None:
        """Judge a piece of the range. Save the state early if the records are larger than planned."""
        super().judge(topic, partition, records, marks)
        if self.is_full:
            self._save()

    def _step(self, batch: Batch) -> Dropped | None:
        self._add("estimates_used", sum(arrival_us > self._state.arrival_us for _, arrival_us in batch.estimates))
        self._note_jumps(batch)
        frontier_us = self._state.arrival_us
        step = self._model.step(self._state, batch)
        self._count(step.counts)
        self.tally.add_breaks(step.counts, batch, self._model, frontier_us)
        self._output.accept(step)
        return step.dropped

    def _note_jumps(self, batch: Batch) -> None:
        bound_us, place = self._plan.settings.watermark_jump_warn_us, f"{self._planned.topic}-{self._planned.partition}"
        # A clock reading is up to the slack old when records are planned under it.
        planned, slack_us = self._planning_times, self._plan.clock_slack_us
        clock_us = planned.times_at(self._places.offsets_of(batch.offset)) + slack_us if planned.judges_stamps else None
        for jump in find_time_jumps(batch, self._model.policies, self._state.arrival_us, clock_us, bound_us):
            self.tally.add_jump(jump)
            if f"time_jumps_{jump.cause}" not in self._state.totals:
                _log.warning(EFFECTS[jump.cause], origin=f"{place}@{self._places.text(jump.offset)}", jump=jump.in_words)
            self._add(f"time_jumps_{jump.cause}", jump.count)

    def _on_parsed(self) -> None:
        self.tally.spend("parse")

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        origin = send_dead_letter(self._plan, topic, partition, records, row, reason)
        if f"dead_letter_{reason}" not in self._state.totals:
            # Log each reason once; later records are only counted.
            _log.warning("a record cannot be used: it and all like it go to the dead-letter topic", origin=origin, reason=reason)
        self._add(f"dead_letter_{reason}", 1)

    def _keep_dropped(self, topic: str, partition: int, records: Records, dropped: Dropped) -> None:
        send_dropped(self._plan, topic, partition, records, dropped)
