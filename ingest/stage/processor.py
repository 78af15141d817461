"""
The stateful stage: reads, judges, orders and writes one input partition's range, and saves its state. It is a thin adapter:
``ordering.model.step`` decides everything. This module feeds the model from Kafka in pieces, writes the released events to the ordered
topic, and saves the changed part of the state in Spark's store.
Law: a repeated batch writes the same bytes with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config import IngestPlan
from ingest.offsets import PlannedPosition
from ingest.open_batches import write_report
from ingest.planned_range import IngestRange
from ingest.planner.arrival_stamps import PlanningTimes
from ingest.skips import read_parts
from ingest.stage.dead_letters import SourceCtis, source_ctis, unusable_rows
from ingest.stage.earlier_attempt import EarlierAttempt, read_earlier_attempt
from ingest.stage.exploding import ElementRecords, explode
from ingest.stage.fact_outbox import FactOutbox, range_facts
from ingest.stage.memory import JobMemory
from ingest.stage.open_batch import OpenBatch, OpenRange
from ingest.stage.pending_ctis import PendingCtis
from ingest.stage.policy_breaks import PolicyBreaks
from ingest.stage.watermark_report import find_watermark, look_at_held
from ordering.arrays import Ints
from ordering.columns.framed_payloads import payload_of
from ordering.columns.payload_columns import rows_above
from ordering.model.events import Dropped, Reason, Released
from ordering.model.state import State
from ordering.model.step import Batch, Counts, Model
from ordering.protocol.elements import Places
from ordering.protocol.punctuation import Cti
from ordering.ticks import format_tick
from tidegate.basics.dead_letter_reasons import DropReason, IngestReason
from tidegate.basics.fault_points import pause_at
from tidegate.language.expressions.syntax.plain_path import listed_paths
from tidegate.platform.checkpoint.spilling import spill
from tidegate.platform.kafka.client_properties import EVENT_BYTES_MAX
from tidegate.platform.kafka.dead_letters import DeadLetter, DeadLetterWriter
from tidegate.platform.kafka.ranges import CHUNK_EVENTS, RangeReader, Records
from tidegate.platform.kafka.worker import WORKER
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer
from tidegate.platform.observe.detail_requests import DetailQuestion
from tidegate.platform.observe.logs import bind_fields, configure_worker, get_logger
from tidegate.platform.observe.reports import BrokenPolicies, IngestReport, JumpReport
from tidegate.platform.observe.time_jumps import EFFECTS, TimeJump, find_time_jumps
from tidegate.platform.spark.privates import batch_of_task
from tidegate.platform.spark.range_rows import Pairs, read_row
from tidegate.platform.spark.state_store import StateStore
from tidegate.records.fields import FieldReader, Fields
from tidegate.records.fields.columns import over_name

# After so many bytes of events the waiting CTIs are written within a range, so that readers need not hold these events any longer.
_PROMISED_BYTES = 2**23

_log = get_logger("ingest.stage")


@dataclass(frozen=True, slots=True)
class RangeMarks:
    """Journaled facts that a range must repeat: (position, microseconds) of estimates and of imports."""

    estimates: tuple[tuple[int, int], ...]
    imports: tuple[tuple[int, int], ...]

    def between(self, first: int, last: int) -> RangeMarks:
        """Return the marks with first <= position <= last."""
        return RangeMarks(*(tuple(mark for mark in marks if first <= mark[0] <= last) for marks in (self.estimates, self.imports)))

    def at(self, places: Places) -> RangeMarks:
        """Return the marks with the places of their positions."""
        return RangeMarks(*(tuple((places.place_of(position), us) for position, us in marks) for marks in (self.estimates, self.imports)))


class _ReadRecords(NamedTuple):
    """The fields of records, their CTIs, and the key of each event: its substream's, or without substreams its record's."""

    fields: Fields
    ctis: SourceCtis
    key: pa.Array


class IngestStage:
    """
    The stateful stage of one ingest job, in one task. Spark commits a task's state only after :meth:`complete` has returned. All ranges of
    a task wait together for acknowledgements, as each wait costs a request to every output partition.
    """

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        self._fields = FieldReader.of(plan.settings, plan.payloads)
        self._question = DetailQuestion(Path(plan.checkpoint))
        self._ctis: list[Cti] = []
        # The ranges of an open batch that were walked so far.
        self._opened: list[OpenRange] = []
        configure_worker()

    def reports(self, rows: list[Any], store: StateStore[State]) -> Iterator[str]:
        """Yield a report for each range; of a batch that stays open the last range yields all."""
        for row in rows:
            planned = read_row(IngestRange, row)
            place = {"topic": planned.topic, "partition": planned.partition, "offset": planned.start, "until": planned.end}
            with bind_fields(input=self._plan.settings.name, **place, **batch_of_task()):
                opened = self._open(planned, store)
            if not planned.open_ranges:
                yield self._close(opened).to_json()
                continue
            self._opened.append(opened)
            if len(self._opened) == planned.open_ranges:
                with bind_fields(input=self._plan.settings.name, **batch_of_task()):
                    reports = self._stay_open()
                yield from (report.to_json() for report in reports)

    def _open(self, planned: IngestRange, store: StateStore[State]) -> OpenRange:
        """Walk the planned range."""
        roster = replace(self._plan.roster, version=planned.roster_version, inputs=planned.inputs)
        model = self._plan.model(planned.number, roster, planned.joined_us)
        state = store.load(planned.number, lambda: self._plan.first_state(model), model.restore)
        producer = WORKER.producer(self._plan.kafka)

        def save() -> None:
            if planned.open_ranges > 1:
                store.select()
            self._save(planned.number, state, store)

        walk = RangeWalk(self._plan, model, state, self._fields, producer, save)
        with self._forgotten_on_failure(planned):
            walk.walk(planned)
        return OpenRange(planned, walk, save)

    def _close(self, opened: OpenRange) -> IngestReport:
        """Save the state of a range; leave its last CTIs for :meth:`complete`."""
        with self._forgotten_on_failure(opened.planned):
            report = opened.walk.finish(self._question.substreams())
        self._ctis += opened.walk.ctis
        opened.save()
        return report

    def _stay_open(self) -> list[IngestReport]:
        """Keep the ranges of this task open; return their reports."""
        ranges, self._opened = self._opened, []
        settings, batch = self._plan.settings, batch_of_task().get("batch", 0)

        def publish(ctis: list[Cti]) -> None:
            write_ctis(WORKER.producer(self._plan.kafka), settings.ordered_topic, ctis)

        with self._forgotten_on_failure(*(opened.planned for opened in ranges)):
            OpenBatch(self._plan, ranges, publish, self._tell).run()
        return [replace(self._close(opened), open_batch=batch, seen_us=opened.seen_us) for opened in ranges]

    def _tell(self, opened: OpenRange) -> None:
        # Costs, breaks and jumps are those of a whole batch: the report at its end has them.
        report = replace(opened.walk.report(self._question.substreams()), seconds={}, breaks=BrokenPolicies(), jump=None)
        with suppress(OSError):
            write_report(Path(self._plan.checkpoint), report)

    @contextmanager
    def _forgotten_on_failure(self, *ranges: IngestRange) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # The producer's queue and the readers' positions are unknown now: none may be used again.
            self._drop_producers()
            settings = self._plan.settings
            for planned in ranges:
                WORKER.drop_reader(self._plan.kafka, planned.topic, planned.partition, settings.source_ctis, settings.headers)
            raise

    def _save(self, number: int, state: State, store: StateStore[State]) -> None:
        delta = state.save()
        spill(state, self._plan.settings.held_bytes_max)
        store.save(number, state, delta)

    def complete(self) -> None:
        """Wait for the events of all ranges of this task, then write the CTIs above them."""
        start_s = time.perf_counter()
        with bind_fields(input=self._plan.settings.name, **batch_of_task()):
            try:
                for letters in letter_writers(self._plan):
                    letters.flush()
                write_ctis(WORKER.producer(self._plan.kafka), self._plan.settings.ordered_topic, self._ctis)
            except BaseException:
                self._drop_producers()
                raise
        pause_at("walked")
        JobMemory.of(self._plan).keep_wait(time.perf_counter() - start_s)

    def _drop_producers(self) -> None:
        WORKER.drop_producer(self._plan.kafka)
        for topic, bytes_max in _letter_topics(self._plan):
            WORKER.drop_dead_letters(self._plan.kafka, topic, bytes_max)


def letter_writers(plan: IngestPlan) -> list[DeadLetterWriter]:
    """Return this worker's writer of dead letters and, if such events are kept, that of events that policies drop."""
    return [WORKER.dead_letters(plan.kafka, topic, bytes_max) for topic, bytes_max in _letter_topics(plan)]


def _letter_topics(plan: IngestPlan) -> list[tuple[str, int]]:
    topics = [(plan.settings.dead_letter_topic, plan.letter_bytes_max)]
    if plan.settings.dropped_topic is not None:
        topics.append((plan.settings.dropped_topic, plan.dropped_bytes_max))
    return topics


def write_ctis(producer: GaplessProducer, topic: str, ctis: list[Cti]) -> None:
    """Wait until all events are acknowledged, then write the CTIs above them with their facts, and wait for these."""
    producer.flush(topic)
    pause_at("events acknowledged")
    ChannelWriter(producer, topic).write_ctis(ctis)
    pause_at("ctis sent")
    producer.flush(topic)


class RangeWalk:
    """One range of one input partition, from Kafka to Kafka; its last CTIs are left in ``ctis``."""

    def __init__(
        self,
        plan: IngestPlan,
        model: Model,
        state: State,
        fields: FieldReader,
        producer: GaplessProducer,
        save: Callable[[], None] = lambda: None,
    ) -> None:
        self._save = save
        # The model and its state count in places. Ranges, marks, CTIs and reports have offsets.
        self._places = plan.settings.places
        self._plan, self._model, self._state, self._fields, self._producer = plan, model, state, fields, producer
        self._writer = ChannelWriter(producer, plan.settings.ordered_topic, are_framed=bool(plan.settings.headers))
        self._pending = PendingCtis(model.generation)
        self.ctis: list[Cti] = []
        self._seconds: dict[str, float] = dict.fromkeys(("read", "parse", "order", "write"), 0.0)
        self._seconds["acknowledge"] = JobMemory.of(plan).pop_wait()
        self._clock_s = time.perf_counter()
        self._bytes = self._read = 0
        # Bytes of events written since the last CTIs.
        self._unpromised_bytes = 0
        self._jumps: list[TimeJump] = []
        self._breaks = PolicyBreaks()
        # Only if a skip has changed may this walk differ from an earlier attempt.
        self._earlier: EarlierAttempt | None = None
        # Compared events are written at the end of the range: only if no event in any output partition differs.
        self._compared: list[Released] = []

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
        end, self._place = planned.end, f"{planned.topic}-{planned.partition}"
        start = min(max(planned.start, self.next_offset), end)
        marks = self._begin_range(planned, is_first=self._state.last_promise is None)
        self._note_skips(replace(planned, start=start))
        if end > start:
            for records in read_unskipped(self.reader(planned), start, end, planned.skips):
                self._spend("read")
                self._bytes += records.value.nbytes
                self._read += len(records)
                pause_at("piece read")
                self.judge(planned.topic, planned.partition, records, marks)
        self._end_range(end, marks, is_final=planned.is_final, joins=planned.joins)
        if self._earlier is not None:
            self._earlier.check_end(self._state.seq)
            for released in self._compared:
                self._writer.write_events(released)

    def go_on(self, records: Records, end: PlannedPosition) -> None:
        """Judge *records*, the next ones, in a range of their own up to *end*, which has its facts: the journal has closed it."""
        self._clock_s = time.perf_counter()
        self._bytes += records.value.nbytes
        self._read += len(records)
        piece = replace(
            self._planned,
            start=self.next_offset,
            end=end.next_offset,
            marks=end.marks_with_end(),
            imports=end.imports_with_end(),
            spans=end.spans,
            base_us=0,
            conflicts=end.conflicts,
            losses=end.losses,
            clamped=end.clamped,
            skips=(),
        )
        marks = self._begin_range(piece, is_first=False)
        pause_at("open piece read")
        self.judge(piece.topic, piece.partition, records, marks)
        self._end_range(piece.end, marks)

    def finish(self, substreams: int | None = None) -> IngestReport:
        """Leave the last CTIs in ``ctis``; return the report, with details of up to *substreams* substreams (None: without details)."""
        self.ctis = self.pop_ctis(is_last=True)
        self._spend("write")
        return self.report(substreams)

    def reader(self, planned: IngestRange) -> RangeReader:
        """Return this process's reader of the range's partition."""
        settings = self._plan.settings
        raw = planned.topic, planned.partition, settings.source_ctis, self._plan.prefetch_bytes, settings.headers
        return WORKER.reader(self._plan.kafka, *raw)

    def _begin_range(self, planned: IngestRange, *, is_first: bool) -> RangeMarks:
        """Put the facts of a range in force, and return its marks; *is_first*: no CTI has carried those in force at its start."""
        kind, self._planned = self._plan.settings.planning_kind, planned
        self._planning_times = PlanningTimes(kind, planned.spans, planned.planned_ms, self._plan.arrival_max_ahead_us)
        self._outbox = FactOutbox(self._model, self._state, range_facts(planned, kind, is_first=is_first))
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
            self._earlier = read_earlier_attempt(self._plan, planned)
        count = planned.end - planned.start - sum(last - first for first, last in read_parts(planned.start, planned.end, planned.skips))
        if count:
            self._add("skipped", count)
            _log.warning("offsets are skipped: tidegate skip shows why", skipped=count, skips=[list(span) for span in planned.skips])

    def judge(self, topic: str, partition: int, records: Records, marks: RangeMarks) -> None:
        """Judge a piece of the range. Save the state early if the records are larger than planned, so that memory is bounded."""
        self._judge(topic, partition, records, marks)
        if self._state.unsaved_bytes >= self._plan.settings.max_bytes_per_batch // self._plan.tasks:
            self._save()

    def _judge(self, topic: str, partition: int, records: Records, marks: RangeMarks) -> None:
        records = self._without_absurd_arrivals(topic, partition, records)
        if not len(records):
            return
        arrival_us = self._planning_times.arrival_us(records)
        if self._plan.settings.explode is None:
            self._judge_events(topic, partition, records, arrival_us, marks)
            return
        for elements in explode(records, source_ctis(records.without_frames()).is_no_cti):
            self._judge_events(topic, partition, elements.records, arrival_us[elements.row], marks, elements)

    def _judge_events(
        self, topic: str, partition: int, records: Records, arrival_us: Ints, marks: RangeMarks, elements: ElementRecords | None = None
    ) -> None:
        """Judge records that are one event each: *elements* says which of them are none, if they were arrays."""
        fields, ctis, key = self._read_fields(records)
        is_letter = np.ones(len(records), dtype=np.bool_)
        if elements is not None:
            fields.mark_unusable(elements.is_no_object, IngestReason.MALFORMED)
            is_letter = ~elements.is_empty
        self._count_keys(fields)
        self._spend("parse")
        start, end = int(records.offset[0]), int(records.offset[-1]) + 1
        in_force = marks.between(self._state.next_offset, end - 1)
        batch = Batch(
            offset=records.offset,
            arrival_us=arrival_us,
            event_time_us=None if self._plan.settings.timestamp_by is None else fields.event_time_us,
            readable=fields.readable,
            substream=fields.substream,
            key=key,
            value=records.value,
            end_offset=end,
            estimates=in_force.estimates,
            source_cti_us=ctis.c_us,
            imports=in_force.imports,
            end_us=fields.end_us,
            start_us=fields.start_us,
        )
        assert start >= self._state.next_offset, "a range starts where the state stands"
        for row, reason in unusable_rows(records, fields, ctis):
            if is_letter[row]:
                self._dead_letter(topic, partition, records, row, reason)
        self._count_empty(int(np.count_nonzero(~is_letter)))
        dropped = self._step(batch)
        if dropped is not None and self._plan.settings.dropped_topic is not None:
            self._keep_dropped(topic, partition, records, dropped)

    def _count_keys(self, fields: Fields) -> None:
        """Count the keys that are texts and those that are other values; tell once that both occur, since 5 and "5" are one substream."""
        totals = self._state.totals
        for place, counts in enumerate(fields.key_counts):
            names = [f"{over_name(place)}_{kind}" for kind in ("texts", "values")]
            were_mixed = all(name in totals for name in names)
            for name, count in zip(names, counts, strict=True):
                self._add(name, count)
            if not were_mixed and all(name in totals for name in names):
                _log.warning(
                    "a key of OVER is a text in some records and no text in others: a number and the text that spells it are one substream",
                    key=".".join(listed_paths(self._plan.settings.over or "")[place]),
                    **{kind: totals[name] for kind, name in zip(("texts", "others"), names, strict=True)},
                )

    def _count_empty(self, arrays: int) -> None:
        # The model counts a record for each, since its arrival advances time.
        for name, count in (("empty_records", arrays), ("events_in", -arrays), ("unreadable", -arrays)):
            self._add(name, count)

    def _read_fields(self, records: Records) -> _ReadRecords:
        # The model passes values on unread, with the headers before them; the fields are read from the bare payloads.
        bare = records.without_frames()
        ctis = source_ctis(bare)
        bytes_max = min(self._plan.record_bytes_max, EVENT_BYTES_MAX)
        oversized = rows_above(bytes_max, records.value)
        payloads = ctis.payloads_of(bare)
        # Oversized records are not parsed: parsing takes several times their size in memory.
        fields = self._fields.read(pc.if_else(pa.array(oversized), None, payloads) if oversized.any() else payloads)
        fields.readable &= ctis.is_no_cti
        if self._plan.key_bytes_max is not None:
            fields.limit_keys(self._plan.key_bytes_max)
        key = records.key if fields.substream is None else fields.substream.dictionary_decode()
        fields.mark_unusable(oversized | rows_above(bytes_max, key, records.value), IngestReason.OVERSIZED)
        return _ReadRecords(fields, ctis, key)

    def _step(self, batch: Batch) -> Dropped | None:
        self._add("estimates_used", sum(arrival_us > self._state.arrival_us for _, arrival_us in batch.estimates))
        self._note_jumps(batch)
        frontier_us = self._state.arrival_us
        step = self._model.step(self._state, batch)
        self._count(step.counts)
        self._breaks.add(step.counts, batch, self._model.policies, frontier_us)
        if self._unpromised_bytes >= _PROMISED_BYTES and self._earlier is None and not self._pending.lists_substreams:
            # Here the wait is short: most events of earlier pieces were acknowledged while this piece was judged.
            self._write_pending()
        self._pending.add(step.ctis)
        self._spend("order")
        if self._earlier is not None:
            self._earlier.check_events(step.released)
            self._compared.append(step.released)
            return step.dropped
        self._writer.write_events(step.released)
        self._unpromised_bytes += step.released.value.nbytes
        self._spend("write")
        pause_at("piece written")
        if self._pending.is_full:
            self._write_pending()
        return step.dropped

    def pop_ctis(self, *, is_last: bool) -> list[Cti]:
        """Return the waiting CTIs with their facts. A CTI within an array says that its record is not yet judged."""
        ctis = self._outbox.attach(self._pending.pop_all(), is_last=is_last)
        return [replace(cti, next_offset=self._places.offset_of(cti.next_offset)) for cti in ctis] if self._places.bits else ctis

    def _write_pending(self) -> None:
        """Write the waiting CTIs before the end of the range."""
        self._spend("order")
        write_ctis(self._producer, self._plan.settings.ordered_topic, self.pop_ctis(is_last=False))
        self._unpromised_bytes = 0
        self._spend("acknowledge")

    def _note_jumps(self, batch: Batch) -> None:
        bound_us = self._plan.settings.watermark_jump_warn_us
        # A clock reading is up to the slack old when records are planned under it.
        planned, slack_us = self._planning_times, self._plan.clock_slack_us
        clock_us = planned.times_at(self._places.offsets_of(batch.offset)) + slack_us if planned.judges_stamps else None
        for jump in find_time_jumps(batch, self._model.policies, self._state.arrival_us, clock_us, bound_us):
            self._jumps.append(jump)
            if f"time_jumps_{jump.cause}" not in self._state.totals:
                _log.warning(EFFECTS[jump.cause], origin=f"{self._place}@{self._places.text(jump.offset)}", jump=jump.in_words)
            self._add(f"time_jumps_{jump.cause}", jump.count)

    def _without_absurd_arrivals(self, topic: str, partition: int, records: Records) -> Records:
        """Dead-letter the records without a plausible arrival, which advance no time; return the others."""
        absurd = self._planning_times.absurd_rows(records)
        if not absurd.any():
            return records
        for row in np.flatnonzero(absurd).tolist():
            reason = IngestReason.ARRIVAL_MISSING if records.timestamp_ms[row] <= 0 else IngestReason.ARRIVAL_AHEAD
            self._dead_letter(topic, partition, replace(records, offset=records.offset << self._places.bits), row, reason)
        return records.select(~absurd)

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        origin = f"{topic}-{partition}@{self._places.text(int(records.offset[row]))}"
        letter_writers(self._plan)[0].send(DeadLetter(reason, origin, *_key_and_value(records, row)))
        if f"dead_letter_{reason}" not in self._state.totals:
            # Log each reason once; later records are only counted.
            _log.warning("a record cannot be used: it and all like it go to the dead-letter topic", origin=origin, reason=reason)
        self._add(f"dead_letter_{reason}", 1)

    def _keep_dropped(self, topic: str, partition: int, records: Records, dropped: Dropped) -> None:
        """Send the events that a policy dropped to their topic, each with the policy and the limit that it broke."""
        writer = letter_writers(self._plan)[-1]
        rows = np.searchsorted(records.offset, dropped.offset).tolist()
        times = (dropped.event_time_us, dropped.arrival_us, dropped.limit_us)
        columns = [dropped.offset.tolist(), dropped.reason.tolist(), *(map(format_tick, column.tolist()) for column in times)]
        for row, offset, reason, *texts in zip(rows, *columns, strict=True):
            details = tuple(zip(("event_time", "arrival", "limit"), texts, strict=True))
            key, value = _key_and_value(records, row)
            name = DropReason[Reason(reason).name]
            writer.send(DeadLetter(name, f"{topic}-{partition}@{self._places.text(offset)}", key, value, details=details))

    def _count(self, counts: Counts) -> None:
        for name, count in asdict(counts).items():
            if name != "held":
                self._add(name, count)

    def _add(self, name: str, count: int) -> None:
        if count:
            self._state.totals[name] = self._state.totals.get(name, 0) + count

    def _spend(self, step: str) -> None:
        """Add the time since the last call to that of *step*."""
        now_s = time.perf_counter()
        self._seconds[step] += now_s - self._clock_s
        self._clock_s = now_s

    def report(self, substreams: int | None = None) -> IngestReport:
        """Return how far the walk has come, with details of up to *substreams* substreams (None: without details)."""
        planned = self._planned
        state, policies, over = self._state, self._model.policies, self._model.over
        return IngestReport(
            topic=planned.topic,
            partition=planned.partition,
            number=planned.number,
            next_offset=self._places.offset_of(state.next_offset),
            arrival_us=state.arrival_us,
            complete_us=state.c,
            held=state.held_count,
            substreams=len(state.timelines),
            # The next range adds to the state's own counts.
            totals=dict(state.totals),
            seconds={name: round(spent, 4) for name, spent in self._seconds.items()},
            read=self._read,
            bytes=self._bytes,
            breaks=self._breaks.report(),
            watermark=find_watermark(state, policies, over),
            jump=self._furthest_jump(),
            held_events=None if substreams is None else look_at_held(state, policies, over, substreams),
        )

    def _furthest_jump(self) -> JumpReport | None:
        if not self._jumps:
            return None
        furthest = max(self._jumps, key=lambda jump: jump.by_us)
        return JumpReport(f"{self._place}@{self._places.text(furthest.offset)}", furthest.cause, furthest.by_us)


def _key_and_value(records: Records, row: int) -> tuple[memoryview | None, memoryview | None]:
    """Return a record's key and value without kept headers, as views: a record may be large, and a letter is cut before it is copied."""
    buffers = (column[row].as_buffer() for column in (records.key, records.value))
    key, value = (None if buffer is None else memoryview(buffer) for buffer in buffers)
    return key, payload_of(value) if records.is_framed and value is not None else value


def read_unskipped(reader: RangeReader, start: int, end: int, skips: Pairs, chunk: int = CHUNK_EVENTS) -> Iterator[Records]:
    """Yield the records of a range in pieces. The reader seeks over skipped offsets, because reading on would fetch them."""
    for first, last in read_parts(start, end, skips):
        if first > start:
            reader.seek(first)
        yield from reader.read(first, last, chunk)
        start = last
    if start < end:
        reader.seek(end)
