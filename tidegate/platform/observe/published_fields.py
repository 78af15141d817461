"""
What jobs publish of themselves in Redis, and how each field of it is checked when it is read.

Others may write there too, and so may jobs of another version. Law: a field is what it has to be, or it is unreadable and named; it never
keeps the others from being read. Members that this version does not know are kept as they are; those of a report are passed over.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidegate.basics.visible_text import visible
from tidegate.platform.observe.reports import BucketReport, IngestReport, Report

# A field with a longer text is not parsed: the longest that a job publishes has some kilobytes.
FIELD_LENGTH_MAX = 2**20

_Count = Annotated[int, Field(ge=0, lt=2**63)]
# Until the end of the year 9999, which is the last time that can be shown.
_TimeMs = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
_Tick = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class _Known(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True, defer_build=True)


class _Recovery(_Known):
    in_words: str = ""
    rate: _Count | None = None
    eta_s: _Seconds | None = None
    caught_up_after_s: _Seconds | None = None


class _Failure(_Known):
    code: str
    what: str


class _Jump(_Known):
    origin: str
    cause: str
    by_us: _Tick


class _Breaks(_Known):
    in_words: str
    fix: str


class _NullColumn(_Known):
    in_words: str


class _ResultDelay(_Known):
    output: str
    in_words: str
    p50_s: _Seconds | None = None
    p99_s: _Seconds | None = None


class JobFields(_Known):
    """The field about the whole job."""

    at_ms: _TimeMs
    state: str = ""
    started_ms: _TimeMs = 0
    input: str = ""
    query: str = ""
    output: str = ""
    outputs: list[str] = []
    lag: _Count | None = None
    lag_s: _Seconds | None = None
    lag_change: Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)] | None = None
    cleared_in_s: _Seconds | None = None
    events_per_s: _Seconds | None = None
    ends: dict[str, _Count] = {}
    recovery: _Recovery = _Recovery()
    failure: _Failure | None = None
    jump: _Jump | None = None
    breaks: _Breaks | None = None
    nulls: list[_NullColumn] = []
    delays: list[_ResultDelay] = []
    waits_for: str = ""
    stands_still: str | None = None
    process: str | None = None


class _Substream(_Known):
    key: str | None
    watermark_us: _Tick
    cause: str
    held: _Count | None = None
    held_from_us: _Tick | None = None


class _BrokenPolicies(_Known):
    events: _Count = 0
    early: _Count = 0
    late: _Count = 0
    out_of_order: _Count = 0
    median_us: dict[str, _Tick] = {}


class _ReportFields(_Known):
    at_ms: _TimeMs
    c: _Tick = 0
    totals: dict[str, _Count] = {}
    seconds: dict[str, _Seconds] = {}
    read: _Count = 0
    bytes: _Count = 0


class IngestReportFields(_ReportFields):
    """The field of an input partition: its last report."""

    number: _Count = 0
    next_offset: _Count = 0
    arrival_us: _Tick = 0
    watermark_us: _Tick = 0
    largest_us: _Tick = 0
    cause: str = ""
    held: _Count | None = None
    held_from_us: _Tick | None = None
    substreams: _Count = 0
    breaks: _BrokenPolicies = _BrokenPolicies()
    jump: _Jump | None = None
    top: list[_Substream] = []


class BucketReportFields(_ReportFields):
    """The field of a bucket: its last report."""

    final: bool = False
    duplicates: _Count = 0
    waiting: list[tuple[str, _Count, _Count, _Tick, _Tick]] = []
    nulls: dict[str, tuple[_Count, dict[str, tuple[_Count, _Count]]]] = {}
    absent: dict[str, list[str]] = {}
    looks_up_from: tuple[_Tick, _Count] | None = None
    delays: dict[str, list[tuple[_Count, _Count]]] = {}


class ReplayFields(BaseModel):
    """The field about the speed of the last replay."""

    records: _Count
    seconds: _Seconds
    start_s: _Seconds


class _HistoryEntry(_Known):
    at_ms: _TimeMs
    what: str
    more: str = ""
    times: _Count = 1


class HistoryFields(_Known):
    """The field about the runs of a job (:mod:`tidegate.platform.observe.run_history`)."""

    entries: list[_HistoryEntry] = []
    settings: dict[str, str] = {}


class FieldError(ValueError):
    """A field is not what it has to be; the text says why, and cites nothing of it that could command a terminal."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A *field* of a *key* in Redis that is not as jobs write it, and why; an empty field stands for the whole key."""

    key: str
    field: str
    why: str

    @property
    def in_words(self) -> str:
        what = f"field {self.field} of {self.key}" if self.field else self.key
        remove = ("HDEL", self.key, self.field) if self.field else ("DEL", self.key)
        return f"{what} in Redis is not as jobs write it: {self.why}; no result depends on it, so it may go: redis-cli {shlex.join(remove)}"


def parse_field(kind: type[BaseModel], text: str) -> dict[str, Any]:
    """Return the members of a field, checked. Raises FieldError: it is too long, no JSON, or not of its kind."""
    return _check_members(kind, _load_json(text))


def parse_report(name: str, number: int, text: str) -> tuple[Report, int]:
    """
    Return the report in the field ``NAME/NUMBER``, checked, and when it was published, milliseconds. A bucket's field is called ``bucket``,
    as that of a topic may be: a bucket's report has such a member too. Raises FieldError, as :func:`parse_field` does.
    """
    value = _load_json(text)
    if name == "bucket" and isinstance(value, dict) and "bucket" in value:
        members = _check_members(BucketReportFields, value)
        return BucketReport.of_dict(members | {"bucket": number}), members["at_ms"]
    members = _check_members(IngestReportFields, value)
    if members.get("held", 0) is None:
        del members["held"]
    return IngestReport.of_dict(members | {"topic": name, "partition": number}), members["at_ms"]


def _load_json(text: str) -> Any:
    if len(text) > FIELD_LENGTH_MAX:
        raise FieldError(f"it has {len(text):,} characters")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise FieldError("it is no JSON") from None


def _check_members(kind: type[BaseModel], value: Any) -> dict[str, Any]:
    try:
        # By default, members that are not there would come back too.
        return kind.model_validate(value).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise FieldError(visible(f"{place}: {first['msg']}" if place else first["msg"])) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
