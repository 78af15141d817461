"""
The stateful stage: one input partition's range is read, judged, ordered and written, and its state moves on.

It is a thin adapter. ``ordering.step`` decides everything; this module feeds it from Kafka in pieces, hands what it
releases to the ordered topic, and keeps its state in Spark's store - only what a batch touched is written there. Spark
sees a range go in and a row of counts come out; a batch that is run again writes the same bytes with the same numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.config import IngestPlan
from ingest.fields import FieldReader, Fields
from ordering.punctuation import Cti
from ordering.state import State
from ordering.step import Batch, Counts, Model
from ordering.ticks import INFINITY, MILLISECOND_US, TICK_MAX
from tidegate.runtime.kafka.ranges import Records, cached_reader, drop_reader
from tidegate.runtime.kafka.writer import ChannelWriter, GaplessProducer, cached_producer, drop_producer
from tidegate.runtime.keeping import Keeper
from tidegate.runtime.logs import quiet_worker


class IngestStage:
    """The stateful stage of one ingest job."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        settings = plan.settings
        self._fields = FieldReader(settings.timestamp_by, settings.timestamp_format, settings.over)
        quiet_worker()

    def reports(self, ranges: list[Any], keeper: Keeper[State]) -> Iterator[str]:
        """Walk the ranges of one input partition; yield a report of each."""
        for planned in ranges:
            yield self._walk(planned, keeper)

    def _walk(self, planned: Any, keeper: Keeper[State]) -> str:
        model = self._plan.model(planned.number)
        state = keeper.load(planned.number, model.new_state, model.restore)
        producer = cached_producer(self._plan.kafka)
        try:
            walk = RangeWalk(self._plan, model, state, self._fields, producer)
            report = walk.run(planned)
        except BaseException:
            # What the producer still holds and where the reader stands is unknown: neither may be used again.
            drop_producer(self._plan.kafka)
            drop_reader(self._plan.kafka, planned.topic, planned.partition)
            raise
        delta = state.save()
        keeper.save(planned.number, state, delta.head, delta.put, delta.delete)
        return report


class RangeWalk:
    """One range of one input partition, from Kafka to Kafka."""

    def __init__(self, plan: IngestPlan, model: Model, state: State, fields: FieldReader, producer: GaplessProducer) -> None:
        self._plan, self._model, self._state, self._fields, self._producer = plan, model, state, fields, producer
        self._writer = ChannelWriter(producer, plan.settings.ordered_topic)
        self._ctis: dict[int, Cti] = {}
        self._seconds: dict[str, float] = dict.fromkeys(("read", "parse", "order", "write", "acknowledge"), 0.0)
        self._clock = time.perf_counter()

    def run(self, planned: Any) -> str:
        """Walk the range; return the report as JSON."""
        marks = [(int(planned.marks[place]), int(planned.marks[place + 1])) for place in range(0, len(planned.marks), 2)]
        topic, end = planned.topic, int(planned.end)
        if end > planned.start:
            prefetch_bytes = self._plan.settings.prefetch_bytes
            reader = cached_reader(self._plan.kafka, topic, planned.partition, prefetch_bytes=prefetch_bytes)
            for records in reader.read(int(planned.start), end):
                self._spent("read")
                self._judge(topic, planned, records, marks)
        last = _nothing(self._model.over, end, _between(marks, end, end), bool(planned.final))
        if last.estimates or last.finish or self._state.next_offset != end:
            self._step(last)
        self._producer.flush(self._plan.settings.ordered_topic)
        self._writer.ctis(self._ctis.values())
        self._producer.flush(self._plan.settings.ordered_topic)
        self._spent("acknowledge")
        return self._report(planned)

    def _judge(self, topic: str, planned: Any, records: Records, marks: list[tuple[int, int]]) -> None:
        records = self._without_absurd_arrivals(topic, planned, records)
        if not len(records):
            return
        fields = self._fields.read(records.value)
        arrival_us = records.timestamp_ms * MILLISECOND_US
        self._spent("parse")
        start, end = int(records.offset[0]), int(records.offset[-1]) + 1
        estimates = _between(marks, self._state.next_offset, end - 1)
        batch = Batch(
            offset=records.offset,
            arrival_us=arrival_us,
            event_time_us=None if self._plan.settings.timestamp_by is None else fields.event_time_us,
            readable=fields.readable,
            substream=fields.substream,
            key=_record_keys(records, fields),
            value=records.value,
            end_offset=end,
            estimates=estimates,
        )
        assert start >= self._state.next_offset, "a range starts where the state stands"
        self._dead_letters(topic, planned.partition, records, fields)
        self._step(batch)

    def _step(self, batch: Batch) -> None:
        step = self._model.step(self._state, batch)
        self._count(step.counts)
        self._ctis.update((cti.output_partition, cti) for cti in step.ctis)
        self._spent("order")
        self._writer.events(step.released)
        self._spent("write")

    def _without_absurd_arrivals(self, topic: str, planned: Any, records: Records) -> Records:
        """Dead-letter records without an arrival, or with one far ahead of when their range was planned: they move no time."""
        limit_ms = planned.planned_ms + self._plan.settings.arrival_max_ahead_us // MILLISECOND_US
        absurd = (records.timestamp_ms <= 0) | (records.timestamp_ms > min(limit_ms, TICK_MAX // MILLISECOND_US))
        if not absurd.any():
            return records
        for row in np.flatnonzero(absurd).tolist():
            reason = "arrival_missing" if records.timestamp_ms[row] <= 0 else "arrival_ahead"
            self._dead_letter(topic, planned.partition, records, row, reason)
        sane = ~absurd
        return Records(records.offset[sane], records.timestamp_ms[sane], records.key[sane], records.value[sane], None)

    def _dead_letters(self, topic: str, partition: int, records: Records, fields: Fields) -> None:
        for row in np.flatnonzero(~fields.readable).tolist():
            reason = "no_payload" if records.value[row] is None else "timestamp" if fields.well_formed[row] else "malformed"
            self._dead_letter(topic, partition, records, row, reason)

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: str) -> None:
        origin = f"{topic}-{partition}@{records.offset[row]}"
        headers: list[tuple[str, str | bytes | None]] = [("reason", reason.encode()), ("origin", origin.encode())]
        self._producer.send_plain(self._plan.settings.dead_letter_topic, records.value[row], records.key[row], headers)
        self._add(f"dead_letter_{reason}", 1)

    def _count(self, counts: Counts) -> None:
        for name, count in asdict(counts).items():
            if name != "held":
                self._add(name, count)

    def _add(self, name: str, count: int) -> None:
        if count:
            self._state.totals[name] = self._state.totals.get(name, 0) + count

    def _spent(self, on: str) -> None:
        now = time.perf_counter()
        self._seconds[on] += now - self._clock
        self._clock = now

    def _report(self, planned: Any) -> str:
        state = self._state
        fields = {
            "topic": planned.topic,
            "partition": int(planned.partition),
            "number": int(planned.number),
            "next_offset": state.next_offset,
            "arrival_us": state.arrival_us,
            "c": state.c,
            "held": len(state.held),
            "substreams": len(state.timelines),
            "final": state.c == INFINITY,
            "totals": state.totals,
            "seconds": {name: round(spent, 4) for name, spent in self._seconds.items()},
        }
        return json.dumps(fields, separators=(",", ":"))


def _record_keys(records: Records, fields: Fields) -> Any:
    """Return the ordered records' keys: the substream's, else the raw record's own."""
    if fields.substream is None:
        return records.key
    distinct = np.empty(len(fields.substream.dictionary), dtype=object)
    distinct[:] = fields.substream.dictionary.to_pylist()
    return distinct[fields.substream.indices.to_numpy()]


def _between(marks: list[tuple[int, int]], first: int, last: int) -> tuple[tuple[int, int], ...]:
    return tuple(mark for mark in marks if first <= mark[0] <= last)


def _nothing(over: bool, end_offset: int, estimates: tuple[tuple[int, int], ...], finish: bool) -> Batch:
    """Return a batch without records: only time moves."""
    ints, objects = np.empty(0, dtype=np.int64), np.empty(0, dtype=object)
    substream = pa.array([], type=pa.binary()) if over else None
    return Batch(ints, ints, ints, np.empty(0, dtype=bool), substream, objects, objects, end_offset, estimates, finish)
