"""
Comparison of the events that a walk writes with those that earlier attempts have left in the ordered topic.

Law: once a record is skipped, a walk writes only if every event that an earlier attempt wrote is the same. An attempt before the skip may
have judged the record and died before it wrote its CTIs. Its events have the same numbers as the events written now. If they differ,
readers may have accepted them already, so the skip comes too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config import IngestPlan
from ingest.planned_range import IngestRange
from ordering.arrays import Ints
from ordering.errors import RefusedError
from ordering.model.events import Released
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_event_headers
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.channel_promises import ctis_of, tail_starts
from tidegate.platform.kafka.foreign_records import read_own
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.writer import event_headers

_ANSWER_S = 30.0

# The headers of one channel's events, by seq.
Headers = Mapping[int, bytes]


class EarlierAttempt:
    """The events of an input partition that earlier attempts have written, by output partition; *planned* is the range walked now."""

    def __init__(self, plan: IngestPlan, planned: IngestRange, headers_by_output: Mapping[int, Headers]) -> None:
        self._input, self._topic = plan.settings.name, plan.settings.ordered_topic
        compared = range(planned.compare_from, planned.compare_until)
        partition = planned.topic, planned.partition
        self._skips = sorted(
            (skip for skip in plan.skips if skip.input_partition == partition and skip.start in compared), key=lambda skip: skip.start
        )
        self._planned, self._headers_by_output = planned, headers_by_output

    def check_events(self, released: Released) -> None:
        """Raise RefusedError (TG-SKIP-PASSED) if an event about to be written differs from the written event with its number."""
        for output, seq, header in zip(
            released.output_partition.tolist(), released.seq.tolist(), event_headers(released).to_pylist(), strict=True
        ):
            if self._headers_by_output[output].get(seq, header) != header:
                raise self._refusal(output, seq)

    def check_end(self, next_seqs: Ints) -> None:
        """
        Raise RefusedError (TG-SKIP-PASSED) if the range is the last that earlier attempts may have walked, and they wrote more events than
        this walk. *next_seqs* has the next number of each output partition.
        """
        if self._planned.end < self._planned.compare_until:
            return
        for output, headers in self._headers_by_output.items():
            if max(headers, default=-1) >= next_seqs[output]:
                raise self._refusal(output, max(headers))

    def _refusal(self, output: int, seq: int) -> RefusedError:
        # Nothing records which skips held at the earlier attempt, so all of them are named.
        states = ", ".join(f"{skip.place} ({'undone' if skip.is_undone else 'in force'})" for skip in self._skips)
        skip = next((skip for skip in self._skips if not skip.is_undone), self._skips[0])
        change = f'--until {skip.end} --why "as before"' if skip.is_undone else "--undo"
        return RefusedError(
            f"event {seq} of {self._topic}-{output}, written by an earlier attempt, was written under other skips than these: {states}",
            code="TG-SKIP-PASSED",
            where=skip.place,
            fix="undo what was asked for since that attempt, and ask again for what was undone since; if the job still cannot continue, "
            "write to a new ordered topic (set ordered_topic)",
            example=f"tidegate skip {self._input} {skip.place} {change}",
        )


def read_earlier_attempt(plan: IngestPlan, planned: IngestRange) -> EarlierAttempt:
    """Return the events of the partition after the last CTI of a range before *planned*, and some earlier ones."""
    topic = plan.settings.ordered_topic
    outputs = [(topic, output) for output in plan.outputs_of(planned.number)]
    admin = Admin(plan.kafka, _ANSWER_S)
    starts, ends = admin.starts(outputs), admin.ends(outputs)
    return EarlierAttempt(
        plan, planned, {output[1]: _read_tail(plan, planned, output[1], starts[output], ends[output]) for output in outputs}
    )


def _read_tail(plan: IngestPlan, planned: IngestRange, output: int, start: int, end: int) -> Headers:
    topic = plan.settings.ordered_topic
    with RangeReader(plan.kafka, topic, output, headers=True) as reader:
        for first in tail_starts(start, end):
            pieces = list(reader.read(first, end))
            ctis = (cti for piece in pieces for _, cti in ctis_of(piece, topic, output))
            if any(cti.number == planned.number and cti.next_offset <= planned.start for cti in ctis):
                break
    # The first copy of an event is the one that readers accept.
    headers: dict[int, bytes] = {}
    for piece in pieces:
        for seq, header in read_own(piece, topic, output, lambda own: list(_own_events(own, planned.number)))[0]:
            headers.setdefault(seq, header)
    return headers


def _own_events(records: Records, number: int) -> Iterator[tuple[int, bytes]]:
    assert records.header is not None, "read with headers"
    rows = np.flatnonzero(pc.binary_length(records.header).fill_null(0).to_numpy() == EVENT_HEADER_BYTES)
    headers = records.header.take(pa.array(rows)).cast(pa.binary(EVENT_HEADER_BYTES))
    table = decode_event_headers(headers)
    own = np.flatnonzero(table["number"] == number)
    return zip(table["seq"][own].tolist(), headers.take(pa.array(own)).to_pylist(), strict=True)
