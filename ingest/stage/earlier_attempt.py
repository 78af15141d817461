"""
Comparison of the events that a walk writes with those that earlier attempts have left in the ordered topic.

Law: once a record is skipped, a walk writes only if every event that an earlier attempt wrote is the same. An attempt before the skip may
have judged the record and died before it wrote its CTIs. Its events have the same numbers as the events written now. If they differ,
readers may have accepted them already, so the skip comes too late.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import numpy as np

from ingest.config import IngestPlan
from ingest.planned_range import IngestRange
from ordering.arrays import Ints
from ordering.errors import RefusedError
from ordering.model.events import Released
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.tails import read_tails
from tidegate.platform.kafka.admin import Admin
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
    with closing(read_tails(plan.kafka, topic, output, start, end)) as tails:
        for tail in tails:
            pieces = [decode(records, topic, output) for records in tail.records]
            ctis = (cti for piece in pieces for _, cti in piece.ctis)
            if any(cti.number == planned.number and cti.next_offset <= planned.start for cti in ctis):
                break
    # The first copy of an event is the one that readers accept.
    headers: dict[int, bytes] = {}
    for piece in pieces:
        events = piece.events.take_rows(np.flatnonzero(piece.events.number == planned.number))
        for seq, header in zip(events.seq.tolist(), events.header.to_pylist(), strict=True):
            headers.setdefault(seq, header)
    return headers
