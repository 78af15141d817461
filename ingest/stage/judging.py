"""
Judging the records of an input partition, piece by piece: from bytes to a batch of the time model.

Law: what the model is told of a record depends on the record, the settings and the facts in force at its place. The stage judges by this
class, and so do those that replay or explain what it wrote; they differ in what they do with the model's answer.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config import IngestPlan
from ingest.planned_range import RangeMarks
from ingest.planner.arrival_stamps import PlanningTimes
from ingest.stage.dead_letters import SourceCtis, source_ctis, unusable_rows
from ingest.stage.exploding import ElementRecords, explode
from ordering.arrays import Ints
from ordering.columns.payload_columns import rows_above
from ordering.model.events import Dropped
from ordering.model.state import State
from ordering.model.step import Batch, Counts, Model
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.language.expressions.syntax.plain_path import listed_paths
from tidegate.platform.kafka.client_properties import EVENT_BYTES_MAX
from tidegate.platform.kafka.records import Records
from tidegate.platform.observe.logs import get_logger
from tidegate.records.fields import FieldReader, Fields
from tidegate.records.fields.columns import over_name

_log = get_logger("ingest.stage")


class _ReadRecords(NamedTuple):
    """The fields of records, their CTIs, and the key of each event: its substream's, or without substreams its record's."""

    fields: Fields
    ctis: SourceCtis
    key: pa.Array


class RecordJudge:
    """Judges the records of one input partition; *model* and *state* count in places, ranges and marks in offsets."""

    def __init__(self, plan: IngestPlan, model: Model, state: State, fields: FieldReader) -> None:
        self._plan, self._model, self._state, self._fields = plan, model, state, fields
        self._places = plan.settings.places
        self._planning_times: PlanningTimes

    # What becomes of the answer

    def _step(self, batch: Batch) -> Dropped | None:
        """Advance the model by a batch; return the events that a policy dropped."""
        raise NotImplementedError

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        """Take a record that is no event."""
        raise NotImplementedError

    def _keep_dropped(self, topic: str, partition: int, records: Records, dropped: Dropped) -> None:
        """Take the events that a policy dropped, if such events are kept."""

    def _on_parsed(self) -> None:
        """Note that the fields of a piece are read."""

    # From records to the model

    def judge(self, topic: str, partition: int, records: Records, marks: RangeMarks) -> None:
        """Judge the next piece of records; *marks* are those in force from where the state stands."""
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
        self._on_parsed()
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

    def _without_absurd_arrivals(self, topic: str, partition: int, records: Records) -> Records:
        """Dead-letter the records without a plausible arrival, which advance no time; return the others."""
        absurd = self._planning_times.absurd_rows(records)
        if not absurd.any():
            return records
        for row in np.flatnonzero(absurd).tolist():
            reason = IngestReason.ARRIVAL_MISSING if records.timestamp_ms[row] <= 0 else IngestReason.ARRIVAL_AHEAD
            self._dead_letter(topic, partition, replace(records, offset=records.offset << self._places.bits), row, reason)
        return records.select(~absurd)

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

    def _count(self, counts: Counts) -> None:
        for name, count in asdict(counts).items():
            if name != "held":
                self._add(name, count)

    def _add(self, name: str, count: int) -> None:
        if count:
            self._state.totals[name] = self._state.totals.get(name, 0) + count
