"""
What the newest records of a raw topic say about an input: fields and their types, event time and key, and the disorder of the events.

Law: a survey depends on the records alone. Its shares are those of the records that it looked at; nothing on the brokers changes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.errors import RefusedError
from ordering.ticks import DAY_US, HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US
from tidegate.language.expressions.syntax.plain_path import plain_path
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.records.fields import FieldReader

RECORDS_MAX = 5_000
# A policy that is proposed is broken by at most this share of the records.
BROKEN_SHARE_MAX = 0.005
# The tolerances that are proposed, microseconds.
TOLERANCES_US = (
    *(0, SECOND_US, 2 * SECOND_US, 5 * SECOND_US, 10 * SECOND_US, 30 * SECOND_US),
    *(MINUTE_US, 5 * MINUTE_US, 15 * MINUTE_US, HOUR_US, 6 * HOUR_US, DAY_US, 7 * DAY_US),
)
# A field whose values lie further from arrival, in the middle, is no event time.
_DISTANCE_MAX_US = 400 * DAY_US
_DEPTH_MAX = 3
_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """The newest records of a topic, each partition in its order: payloads that are JSON objects, and what is known of each."""

    topic: Topic
    payloads: list[bytes]
    objects: list[dict[str, Any]]
    keys: list[bytes | None]
    partition: Ints
    arrival_us: Ints
    # Records that are no JSON objects.
    others: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A policy's proposed tolerance, microseconds; the share of events beyond it, and beyond the next smaller one that was tried."""

    us: int
    beyond: float
    smaller_us: int | None
    beyond_smaller: float

    @classmethod
    def choose(cls, distances_us: Ints, least_us: int = 0) -> Tolerance:
        """Return the smallest tolerance, not below *least_us*, that few enough distances exceed."""
        smaller: int | None = None
        beyond_smaller = 0.0
        for us in TOLERANCES_US:
            beyond = float((distances_us > us).mean()) if len(distances_us) else 0.0
            if us >= least_us and (beyond <= BROKEN_SHARE_MAX or us == TOLERANCES_US[-1]):
                break
            smaller, beyond_smaller = us, beyond
        return cls(us, beyond, smaller, beyond_smaller)


@dataclass(frozen=True, slots=True)
class Survey:
    """
    A proposal: types by field path, event time and key (None: none was found), and tolerances; ``mixed`` are fields whose values have no
    common type.
    """

    sample: Sample
    fields: Mapping[str, str]
    mixed: Sequence[str]
    timestamp_by: str | None
    over: str | None
    early: Tolerance
    late: Tolerance
    reorder: Tolerance


def read_sample(admin: Admin, kafka: Mapping[str, str], topic: Topic) -> Sample:
    """Return the newest records of a topic. Raises RefusedError (TG-NEW-TOPIC): there are none, or most are no JSON objects."""
    starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions)
    share = max(RECORDS_MAX // topic.partitions, 1)
    sample = Sample(topic, [], [], [], np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0)
    partitions, stamps, others = list[int](), list[int](), 0
    for place in topic.all_partitions:
        size = 0
        with RangeReader(kafka, *place, prefetch_bytes=1 << 20) as reader:
            for records in reader.read(max(starts[place], ends[place] - share), ends[place], chunk_bytes=1 << 20):
                columns = records.key.to_pylist(), records.value.to_pylist(), records.timestamp_ms.tolist()
                for key, value, stamp_ms in zip(*columns, strict=True):
                    if (found := _as_object(value)) is None:
                        others += 1
                        continue
                    sample.payloads.append(value)
                    sample.objects.append(found)
                    sample.keys.append(key)
                    partitions.append(place[1])
                    stamps.append(stamp_ms)
                    size += len(value)
                if size > _BYTES_MAX:
                    break
    if len(sample.payloads) <= others:
        what = f"most of the newest records of {topic.name} are no JSON objects" if others else f"{topic.name} has no records to look at"
        fix = "write its input by hand: inputs of CSV and Avro need settings of their own" if others else "produce some first"
        raise RefusedError(what, code="TG-NEW-TOPIC", where=topic.name, fix=fix, example="tidegate new" if others else "")
    arrival_us = np.array(stamps, dtype=np.int64) * MILLISECOND_US
    return Sample(topic, sample.payloads, sample.objects, sample.keys, np.array(partitions, dtype=np.int64), arrival_us, others)


def _as_object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def make_survey(sample: Sample) -> Survey:
    """Return what the records say about their input."""
    kinds = _kinds_by_path(sample.objects)
    fields = {path: kind for path, found in kinds.items() if (kind := _common_kind(found)) is not None}
    mixed = [path for path, found in kinds.items() if _common_kind(found) is None and found]
    timestamp_by, event_us = _find_event_time(sample, fields)
    over = _find_key(sample, fields)
    nothing = Tolerance.choose(np.empty(0, dtype=np.int64))
    if timestamp_by is None:
        return Survey(sample, fields, mixed, None, None, nothing, nothing, nothing)
    delay_us = sample.arrival_us - event_us
    behind_us = _behind_newest(sample, event_us, over)
    early = Tolerance.choose(-delay_us, 5 * MINUTE_US)
    return Survey(sample, fields, mixed, timestamp_by, over, early, Tolerance.choose(delay_us, SECOND_US), Tolerance.choose(behind_us))


def _kinds_by_path(objects: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the kinds of the values of each field, in the order in which the fields first occur; those of NULL are none."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for each in objects:
        for path, value in _walk(each):
            kinds[path] |= _kind_of(value)
    return kinds


def _walk(record: Mapping[str, Any], before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        # A setting names a field by names with dots between them, in brackets if need be.
        if not name or set(name) & set(".[]"):
            continue
        if isinstance(value, dict) and depth < _DEPTH_MAX:
            yield from _walk(value, f"{before}{name}.", depth + 1)
        else:
            yield before + name, value


def _kind_of(value: Any) -> set[str]:
    if value is None:
        return set()
    if isinstance(value, bool):
        return {"bit"}
    if isinstance(value, int):
        return {"bigint" if -(2**63) <= value < 2**63 else "float"}
    if isinstance(value, float):
        return {"float"}
    if isinstance(value, str):
        return {"datetime" if _is_time(value) else "nvarchar(max)"}
    return {"array" if isinstance(value, list) else "record"}


def _is_time(text: str) -> bool:
    # Python reads 20260105 and 2026-W02 as times too.
    if len(text) < len("2026-01-05T08:00") or text[4:5] != "-" or text[10:11] not in ("T", " "):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _common_kind(kinds: set[str]) -> str | None:
    if len(kinds) == 1:
        return next(iter(kinds))
    return {frozenset({"bigint", "float"}): "float", frozenset({"datetime", "nvarchar(max)"}): "nvarchar(max)"}.get(frozenset(kinds))


def _find_event_time(sample: Sample, fields: Mapping[str, str]) -> tuple[str | None, Ints]:
    """Return the field that all records have a time in, nearest to their arrival; and these times, microseconds."""
    payloads = pa.array(sample.payloads, pa.binary())
    best: tuple[float, str, Ints] | None = None
    for path, kind in fields.items():
        if kind not in ("bigint", "float", "datetime", "nvarchar(max)"):
            continue
        read = FieldReader(as_setting(path), "auto", None).read(payloads)
        distance_us = float(np.median(np.abs(sample.arrival_us - read.event_time_us))) if read.timed.all() else np.inf
        if distance_us <= _DISTANCE_MAX_US and (best is None or distance_us < best[0]):
            best = distance_us, path, np.asarray(read.event_time_us)
    return (None, sample.arrival_us) if best is None else (best[1], best[2])


def _find_key(sample: Sample, fields: Mapping[str, str]) -> str | None:
    """Return the field whose value is the key of the records, if all have one and it is not different in each."""
    if not sample.keys or None in sample.keys or len(set(sample.keys)) == len(sample.keys) > 1:
        return None
    payloads = pa.array(sample.payloads, pa.binary())
    for path, kind in fields.items():
        if kind in ("nvarchar(max)", "bigint", "datetime") and plain_path(path) is not None:
            substream = FieldReader(None, "auto", path).read(payloads).substream
            if substream is not None and substream.dictionary_decode().to_pylist() == sample.keys:
                return path
    return None


def as_setting(path: str) -> str:
    """Return a field as ``timestamp_by`` takes it: in brackets if its names are none of SQL's."""
    return path if plain_path(path) is not None else ".".join(f"[{name}]" for name in path.split("."))


def _behind_newest(sample: Sample, event_us: Ints, over: str | None) -> Ints:
    """Return how far each event lies behind the newest one before it in its timeline, microseconds; 0 for one that is the newest."""
    behind_us = np.zeros(len(event_us), dtype=np.int64)
    timelines: dict[Any, int] = {}
    for row, (partition, key, time_us) in enumerate(zip(sample.partition.tolist(), sample.keys, event_us.tolist(), strict=True)):
        timeline = partition if over is None else (partition, key)
        newest_us = timelines.get(timeline, time_us)
        behind_us[row] = max(newest_us - time_us, 0)
        timelines[timeline] = max(newest_us, time_us)
    return behind_us
