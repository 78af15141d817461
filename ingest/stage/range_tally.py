"""
What a walk tells of itself: the seconds of its steps, the records and bytes read, the policies broken, and the jumps of time.
Law: nothing here decides anything.
"""

from __future__ import annotations

import time

from ingest.planned_range import IngestRange
from ingest.stage.policy_breaks import PolicyBreaks
from ingest.stage.watermark_report import find_watermark, look_at_held
from ordering.model.state import State
from ordering.model.step import Batch, Counts, Model
from ordering.protocol.elements import Places
from tidegate.platform.kafka.records import Records
from tidegate.platform.observe.reports import IngestReport, JumpReport
from tidegate.platform.observe.time_jumps import TimeJump


class RangeTally:
    """The tally of one walk, or of what went on after the one before it too."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.count_anew()

    def count_anew(self) -> None:
        """Begin to count for the report of another batch."""
        self._seconds: dict[str, float] = dict.fromkeys(("read", "parse", "order", "write"), 0.0)
        self._seconds["acknowledge"] = 0.0
        self._bytes = self._read = 0
        self._breaks = PolicyBreaks()
        self._jumps: list[TimeJump] = []
        self.start_clock()

    def add_wait(self, waited_s: float) -> None:
        """Add how long the task before waited for acknowledgements, seconds."""
        self._seconds["acknowledge"] += waited_s

    def start_clock(self) -> None:
        """Begin to take the time of the next step."""
        self._clock_s = time.perf_counter()

    def spend(self, step: str) -> None:
        """Add the time since the last call to that of *step*."""
        now_s = time.perf_counter()
        self._seconds[step] += now_s - self._clock_s
        self._clock_s = now_s

    def add_records(self, records: Records) -> None:
        """Count records that were read."""
        self._bytes += records.value.nbytes
        self._read += len(records)

    def add_breaks(self, counts: Counts, batch: Batch, model: Model, frontier_us: int) -> None:
        """Count the policies that the events of a batch broke; *frontier_us*: the arrival frontier before it."""
        self._breaks.add(counts, batch, model.policies, frontier_us)

    def add_jump(self, jump: TimeJump) -> None:
        """Keep a jump of time."""
        self._jumps.append(jump)

    def report(self, planned: IngestRange, model: Model, state: State, substreams: int | None) -> IngestReport:
        """Return how far the walk has come, with details of up to *substreams* substreams (None: without details)."""
        policies, over = model.policies, model.over
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
            jump=self._furthest_jump(planned),
            held_events=None if substreams is None else look_at_held(state, policies, over, substreams),
        )

    def _furthest_jump(self, planned: IngestRange) -> JumpReport | None:
        if not self._jumps:
            return None
        furthest = max(self._jumps, key=lambda jump: jump.by_us)
        place = f"{planned.topic}-{planned.partition}@{self._places.text(furthest.offset)}"
        return JumpReport(place, furthest.cause, furthest.by_us)
