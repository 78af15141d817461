"""
The reports of stages: what the task of an input partition, or of a bucket, says to its driver after each batch. The driver publishes them
in Redis; progress lines, warnings, metrics, ``tidegate status`` and ``tidegate watermarks`` read them.

Law: what :meth:`of_json` reads equals what :meth:`to_json` wrote. A report that lacks a member, as one of another version may, has what
stands for "not known yet" there; members that this version does not know are passed over. No result depends on a report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from ordering.ticks import INFINITY, NEVER

_POLICIES = ("early", "late", "out_of_order")


@dataclass(frozen=True, slots=True)
class Watermark:
    """The watermark of an input partition."""

    # Microseconds; with OVER the floor.
    us: int = NEVER
    # The largest system timestamp accepted, microseconds.
    largest_us: int = NEVER
    # What it follows: ``event``, ``late floor``, ``estimate``, ``source CTI``, ``import``, ``join``, ``end``; ``nothing`` before the first
    # record; empty if not known.
    cause: str = ""


@dataclass(frozen=True, slots=True)
class SubstreamReport:
    """The watermark of one substream, and the events that wait for it."""

    key: str | None
    watermark_us: int
    # ``event`` or ``floor``.
    cause: str
    # The largest system timestamp accepted, microseconds.
    largest_us: int = NEVER
    # How many events wait; None: not known.
    held: int | None = None
    # The least system timestamp that waits, microseconds; None if none does.
    held_from_us: int | None = None


@dataclass(frozen=True, slots=True)
class HeldReport:
    """The held events of an input partition, looked at one by one: a stage does so only while a client asks."""

    # The least system timestamp held, microseconds; None if no event is held.
    from_us: int | None = None
    # With OVER the substreams asked for: those that hold most first, then those with the highest watermark.
    top: tuple[SubstreamReport, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokenPolicies:
    """How many events of a batch broke each time policy, and by how much."""

    events: int = 0
    early: int = 0
    late: int = 0
    out_of_order: int = 0
    # The median distance by policy, microseconds, where it was measured.
    median_us: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many events broke each policy, by its name."""
        return {policy: getattr(self, policy) for policy in _POLICIES}


@dataclass(frozen=True, slots=True)
class JumpReport:
    """The record of a batch that moved time furthest, beyond ``watermark_jump_warn``."""

    # ``topic-partition@offset``.
    origin: str
    # A value of :class:`~tidegate.platform.observe.time_jumps.JumpCause`.
    cause: str
    # How far it moved time, microseconds.
    by_us: int


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The report of an input partition: its state after a batch, and what the batch cost."""

    topic: str
    partition: int
    # The number of the partition in the roster.
    number: int = 0
    # All records below this offset were judged.
    next_offset: int = 0
    # The arrival frontier, microseconds.
    arrival_us: int = NEVER
    # Below this instant all events of the partition have been written, microseconds: the *c* of its CTIs, and ``c`` in JSON. INFINITY at
    # its end.
    complete_us: int = NEVER
    # How many events wait for their watermark.
    held: int = 0
    # How many timelines must be remembered.
    substreams: int = 0
    # Counts since the ordered topic was created, by their names.
    totals: Mapping[str, int] = field(default_factory=dict)
    # The seconds of the batch by step: ``read``, ``parse``, ``order``, ``write``, ``acknowledge``.
    seconds: Mapping[str, float] = field(default_factory=dict)
    # Records and bytes that the batch has read.
    read: int = 0
    bytes: int = 0
    # If the batch stayed open: its number in Spark, else -1. And the machine's clock for durations when the arrival frontier was known to
    # be reached, microseconds: after the record was read that moved it last, or after the estimate was made. 0: not in this batch.
    open_batch: int = -1
    seen_us: int = 0
    estimated_us: int = 0
    # The boot of the machine whose clock that is.
    boot_id: str = ""
    # Whether the journal may have an estimate at this position that the batch did not use, since the answer was lost.
    lost_answer: bool = False
    breaks: BrokenPolicies = field(default_factory=BrokenPolicies)
    watermark: Watermark = field(default_factory=Watermark)
    # None if no record moved time too far.
    jump: JumpReport | None = None
    # None if no client asked.
    held_events: HeldReport | None = None

    @property
    def place(self) -> tuple[str, int]:
        """The input partition."""
        return self.topic, self.partition

    @property
    def is_final(self) -> bool:
        """Whether the partition has ended."""
        return self.complete_us == INFINITY

    @property
    def watermark_us(self) -> int:
        return self.watermark.us

    def as_dict(self) -> dict[str, Any]:
        """Return the members of the JSON object."""
        members: dict[str, Any] = {
            "topic": self.topic,
            "partition": self.partition,
            "number": self.number,
            "next_offset": self.next_offset,
            "arrival_us": self.arrival_us,
            "c": self.complete_us,
            "held": self.held,
            "substreams": self.substreams,
            "final": self.is_final,
            "totals": self.totals,
            "seconds": self.seconds,
            "read": self.read,
            "bytes": self.bytes,
            "breaks": asdict(self.breaks),
            "watermark_us": self.watermark.us,
            "largest_us": self.watermark.largest_us,
            "cause": self.watermark.cause,
        }
        if self.open_batch >= 0:
            members |= {"open_batch": self.open_batch, "seen_us": self.seen_us, "estimated_us": self.estimated_us}
            members |= {"boot_id": self.boot_id, "lost_answer": self.lost_answer}
        if self.jump is not None:
            members["jump"] = asdict(self.jump)
        if self.held_events is not None:
            members["held_from_us"] = self.held_events.from_us
            if self.held_events.top:
                members["top"] = [asdict(substream) for substream in self.held_events.top]
        return members

    def to_json(self) -> str:
        return _to_json(self.as_dict())

    @classmethod
    def of_dict(cls, members: Mapping[str, Any]) -> IngestReport:
        """Return the report with the *members* of a JSON object, each of its type; ``topic`` and ``partition`` are among them."""
        complete_us, jump = members.get("c", NEVER), members.get("jump")
        watermark = Watermark(members.get("watermark_us", complete_us), members.get("largest_us", NEVER), members.get("cause", ""))
        top = tuple(SubstreamReport(**_known(SubstreamReport, substream)) for substream in members.get("top", ()))
        return cls(
            **_known(cls, members, _INGEST_SCALARS),
            complete_us=complete_us,
            breaks=BrokenPolicies(**_known(BrokenPolicies, members.get("breaks", {}))),
            watermark=watermark,
            jump=None if jump is None else JumpReport(**_known(JumpReport, jump)),
            held_events=HeldReport(members["held_from_us"], top) if "held_from_us" in members else None,
        )

    @classmethod
    def of_json(cls, text: str) -> IngestReport:
        return cls.of_dict(json.loads(text))


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a CTI promises and that are not there yet."""

    topic: str
    partition: int
    # The roster number of the channel.
    channel: int
    # The CTI promises the events with smaller numbers.
    promised_seq: int
    # The number of the last event met.
    last_seq: int

    @property
    def place(self) -> tuple[str, int]:
        """The partition of the ordered topic."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class ColumnNulls:
    """How many of the recent records have no value in a column, and how many of these not even such a field."""

    nulls: int
    absent: int


@dataclass(frozen=True, slots=True)
class InputNulls:
    """The recent records of an input that were looked at, and by name the columns in which some have no value."""

    records: int
    columns: Mapping[str, ColumnNulls]


@dataclass(frozen=True, slots=True)
class LooksUpFrom:
    """From when on a bucket may still look rows of reference data up."""

    # Microseconds.
    us: int
    # How many versions it knows that were added since the run was begun.
    added: int


@dataclass(frozen=True, slots=True)
class BucketReport:
    """The report of a query's bucket: its state after a batch, and what the batch cost."""

    bucket: int
    # Events and bytes that the batch has read.
    read: int = 0
    bytes: int = 0
    # Below this instant all that the bucket reads is complete, microseconds: the least *c* of its input's CTIs, and ``c`` in JSON. INFINITY
    # at its end.
    complete_us: int = NEVER
    # Whether the bucket has read the final CTIs of its input, or has reached the instant at which the job stops.
    is_final: bool = False
    # Counts since the result topic was created, by their names.
    totals: Mapping[str, int] = field(default_factory=dict)
    # Records skipped because they had been met before.
    duplicates: int = 0
    waiting: tuple[Gap, ...] = ()
    # By input.
    nulls: Mapping[str, InputNulls] = field(default_factory=dict)
    # By input: the columns without a value in its first records; inputs of which too few are read are left out.
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The seconds of the batch by step: ``read``, ``compute``, ``write``, ``acknowledge``.
    seconds: Mapping[str, float] = field(default_factory=dict)
    # None without reference data.
    looks_up_from: LooksUpFrom | None = None
    # By output: for each delay, milliseconds, how many results of the batch had it (:mod:`tidegate.platform.observe.result_delays`).
    delays: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    # If the batch stayed open: its number in Spark, else -1; and up to where the bucket has read each log.
    open_batch: int = -1
    next_offsets: Mapping[int, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, int]:
        """The name of the report among those of all stages."""
        return "bucket", self.bucket

    @property
    def watermark_us(self) -> int:
        """A bucket has no watermark of its own: it is as far as its input."""
        return self.complete_us

    def as_dict(self) -> dict[str, Any]:
        """Return the members of the JSON object."""
        members: dict[str, Any] = {
            "bucket": self.bucket,
            "read": self.read,
            "bytes": self.bytes,
            "c": self.complete_us,
            "final": self.is_final,
            "totals": self.totals,
            "duplicates": self.duplicates,
            "waiting": [astuple(gap) for gap in self.waiting],
            "nulls": {
                name: (each.records, {column: astuple(counts) for column, counts in each.columns.items()})
                for name, each in self.nulls.items()
            },
            "absent": self.absent,
            "seconds": self.seconds,
        }
        if self.looks_up_from is not None:
            members["looks_up_from"] = astuple(self.looks_up_from)
        if self.delays:
            members["delays"] = {output: sorted(delays.items()) for output, delays in self.delays.items()}
        if self.open_batch >= 0:
            members |= {"open_batch": self.open_batch, "next_offsets": sorted(self.next_offsets.items())}
        return members

    def to_json(self) -> str:
        return _to_json(self.as_dict())

    @classmethod
    def of_dict(cls, members: Mapping[str, Any]) -> BucketReport:
        """Return the report with the *members* of a JSON object, each of its type; ``bucket`` is among them."""
        looks_up_from = members.get("looks_up_from")
        return cls(
            **_known(cls, members, _BUCKET_SCALARS),
            complete_us=members.get("c", NEVER),
            is_final=members.get("final", False),
            waiting=tuple(Gap(*gap) for gap in members.get("waiting", ())),
            nulls={
                name: InputNulls(records, {column: ColumnNulls(*counts) for column, counts in columns.items()})
                for name, (records, columns) in members.get("nulls", {}).items()
            },
            absent={name: tuple(columns) for name, columns in members.get("absent", {}).items()},
            looks_up_from=None if looks_up_from is None else LooksUpFrom(*looks_up_from),
            delays={output: dict(delays) for output, delays in members.get("delays", {}).items()},
            next_offsets=dict(members.get("next_offsets", ())),
        )

    @classmethod
    def of_json(cls, text: str) -> BucketReport:
        return cls.of_dict(json.loads(text))


Report = IngestReport | BucketReport

# The fields that JSON has as they are.
_INGEST_SCALARS = (
    *("topic", "partition", "number", "next_offset", "arrival_us"),
    *("held", "substreams", "totals", "seconds", "read", "bytes", "open_batch", "seen_us", "estimated_us"),
    *("boot_id", "lost_answer"),
)
_BUCKET_SCALARS = ("bucket", "read", "bytes", "totals", "duplicates", "seconds", "open_batch")


def _known(kind: Any, members: Mapping[str, Any], names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the *members* that are fields of *kind*, or those with *names*."""
    return {name: members[name] for name in names or kind.__dataclass_fields__ if name in members}


def _to_json(members: Mapping[str, Any]) -> str:
    return json.dumps(members, separators=(",", ":"))
