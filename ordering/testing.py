"""
Public helpers for tests and for trying policies: a manual clock, logs as plain lists, and transcripts of the policies' actions. To check
another implementation of the ordered topic see :mod:`ordering.conformance`.

Law: a transcript runs the ``ordering.model.step.Model`` that the ingest job runs, one record at a time.

::

    print(transcript(log_of([("12:07", "12:07", "a"), ("12:12", "12:17", "b")]), Policies()))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ordering.arrays import Ints
from ordering.columns.payload_columns import to_objects
from ordering.model.step import Batch, Model, Reason, Step
from ordering.policies import Policies, Shape
from ordering.protocol.wire import Flag
from ordering.ticks import DAY_US, HOUR_US, MINUTE_US, NEVER, SECOND_US, format_tick, parse_duration, parse_tick


@dataclass(frozen=True, slots=True)
class Record:
    """
    One raw record. Times are microseconds.

    Args:
        arrival_us: Its arrival time as stamped, not yet clamped.
        event_time_us: Its event time (the end, of an end edge); None: unreadable, or a CTI.
        key: With OVER the substream key; else the record's key.
        source_cti_us: The c of a source CTI; None for other records.
        end_us: The end of an interval; None for other shapes.
        start_us: For an end edge the event time of its start edge; ``NEVER`` for a start edge; None for other shapes.
        raw_key: The record's key if *key* is a substream key; without OVER edges are matched by it.
    """

    offset: int
    arrival_us: int
    event_time_us: int | None
    key: bytes = b""
    source_cti_us: int | None = None
    end_us: int | None = None
    start_us: int | None = None
    raw_key: bytes | None = None

    @property
    def shape(self) -> Shape:
        if self.start_us is not None:
            return Shape.EDGE
        return Shape.POINT if self.end_us is None else Shape.INTERVAL

    @property
    def is_end_edge(self) -> bool:
        return self.start_us is not None and self.start_us != NEVER


class ManualClock:
    """A clock that moves only by :meth:`advance`. A call returns its time in microseconds."""

    def __init__(self, start: int | str = 0) -> None:
        self._now_us = tick(start)

    def __call__(self) -> int:
        return self._now_us

    def advance(self, duration: int | str) -> int:
        """Advance by microseconds or by a duration such as ``5s``; return the new time."""
        self._now_us += parse_duration(duration) if isinstance(duration, str) else duration
        return self._now_us


def tick(time: int | str) -> int:
    """Convert ``hh:mm`` or ``hh:mm:ss`` (of the epoch's first day) or ISO-8601 to ticks, TickRangeError if it is no time; keep ticks."""
    if isinstance(time, int):
        return time
    return parse_tick(f"1970-01-01T{time}") if len(time) > 2 and time[2] == ":" else parse_tick(time)


def clock_text(time_us: int) -> str:
    """Format a time so that :func:`tick` reads it, as short as possible."""
    if not 0 <= time_us < DAY_US or time_us % SECOND_US:
        return "never" if time_us <= NEVER else format_tick(time_us)
    text = f"{time_us // HOUR_US:02}:{time_us % HOUR_US // MINUTE_US:02}"
    seconds = time_us % MINUTE_US // SECOND_US
    return f"{text}:{seconds:02}" if seconds else text


def log_of(rows: Iterable[tuple[int | str | None, int | str, str | bytes]], first_offset: int = 1) -> list[Record]:
    """Return the raw log of (event time, arrival time, key) with consecutive offsets; event time None means unreadable."""
    return [
        Record(offset, tick(arrival), None if time is None else tick(time), key.encode() if isinstance(key, str) else key)
        for offset, (time, arrival, key) in enumerate(rows, first_offset)
    ]


def batch_of(
    records: Sequence[Record],
    *,
    over: bool = False,
    end_offset: int | None = None,
    estimates: Sequence[tuple[int, int]] = (),
    imports: Sequence[tuple[int, int]] = (),
    finish: bool = False,
) -> Batch:
    """
    Return *records*, a contiguous range of a raw log, as one batch for ``Model.step``; the first event determines the shape. *over*: keys
    are substreams; *end_offset* is by default the one after the last record, and required if *records* is empty; others: see ``Batch``.
    """
    if end_offset is None:
        end_offset = records[-1].offset + 1
    shape = next((record.shape for record in records if record.event_time_us is not None), Shape.POINT)
    return Batch(
        offset=np.array([record.offset for record in records], dtype=np.int64),
        arrival_us=np.array([record.arrival_us for record in records], dtype=np.int64),
        event_time_us=np.array([record.event_time_us or 0 for record in records], dtype=np.int64),
        readable=np.array([record.event_time_us is not None for record in records], dtype=np.bool_),
        substream=to_objects([record.key for record in records]) if over else None,
        key=to_objects([record.key if record.raw_key is None else record.raw_key for record in records]),
        value=to_objects([str(record.offset).encode() for record in records]),
        end_offset=end_offset,
        estimates=tuple(estimates),
        imports=tuple(imports),
        finish=finish,
        source_cti_us=_times([record.source_cti_us for record in records]) if any(record.source_cti_us for record in records) else None,
        end_us=_times([record.end_us for record in records]) if shape is Shape.INTERVAL else None,
        start_us=_times([record.start_us for record in records]) if shape is Shape.EDGE else None,
    )


@dataclass
class Transcript:
    """
    The fate of a log's events, named by offset; :func:`clock_text` formats the times. ``released`` is in release order, ``held`` in the
    order of its future release; both have (offset, system timestamp, policies that adjusted the event). ``dropped`` has (offset, policy).
    ``str()`` shows it record by record.
    """

    released: list[tuple[int, str, str]] = field(default_factory=list)
    held: list[tuple[int, str, str]] = field(default_factory=list)
    dropped: list[tuple[int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.lines, f"held: {_join_events(self.held)}"])


def transcript(
    log: Sequence[Record], policies: Policies, *, over: bool = False, output_partitions: int = 1, finish: bool = False
) -> Transcript:
    """
    Run the model over *log* (see :func:`log_of`) record by record and describe the effect of each record. *over*: each key has a timeline
    of its own; *finish*: the input ends after the log, which releases all held events.
    """
    model = Model(policies, over, output_partitions)
    state = model.new_state()
    result = Transcript()
    for record in log:
        step = model.step(state, batch_of([record], over=over))
        time = "unreadable" if record.event_time_us is None else clock_text(record.event_time_us)
        name = f"{record.offset:>4} {time} arriving {clock_text(record.arrival_us)} {record.key.decode(errors='replace')}".rstrip()
        result.lines.append(f"{name}: {_describe(step, result)}; c = {clock_text(state.c)}")
    if finish:
        end = batch_of([], over=over, end_offset=state.next_offset, finish=True)
        result.lines.append(f" end: {_describe(model.step(state, end), result)}")
    held = state.held
    held = held.take_rows(np.lexsort((held.offset, held.system_us)))
    result.held = _name_events(held.offset.tolist(), held.system_us.tolist(), held.flags.tolist())
    return result


def _describe(step: Step, result: Transcript) -> str:
    left = step.released
    released = _name_events(left.offset.tolist(), left.system_us.tolist(), left.flags.tolist())
    dropped = [
        (offset, Reason(reason).name.lower())
        for offset, reason in zip(step.dropped.offset.tolist(), step.dropped.reason.tolist(), strict=True)
    ]
    result.released += released
    result.dropped += dropped
    return "; ".join([f"dropped as {reason}" for _, reason in dropped] + [f"releases {_join_events(released)}"])


def _name_events(offsets: list[int], system_us: list[int], flags: list[int]) -> list[tuple[int, str, str]]:
    return [(offset, clock_text(time), _policies(flag)) for offset, time, flag in zip(offsets, system_us, flags, strict=True)]


def _policies(flags: int) -> str:
    return "+".join(flag.name.lower() for flag in Flag if flags & flag and flag.name)


def _join_events(events: list[tuple[int, str, str]]) -> str:
    return ", ".join(f"{offset} at {time}" + (f" ({policies})" if policies else "") for offset, time, policies in events) or "nothing"


def _times(values: list[int | None]) -> Ints:
    return np.array([NEVER if value is None else value for value in values], dtype=np.int64)
