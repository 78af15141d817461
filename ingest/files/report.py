"""
Progress, summary and errors of ``tidegate order``.

Law: the counts add up: every record is in order, dropped or unreadable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from difflib import get_close_matches
from typing import Any

from ingest.files.walk import FileWalk, Summary
from ordering.protocol.keys import KEY_BYTES_MAX
from ordering.ticks import SECOND_US
from tidegate.platform.observe.time_jumps import describe_file_jumps
from tidegate.records.files.blocks import FileRecords, OrderFileError
from tidegate.records.files.fields import FieldPath, format_path
from tidegate.records.files.rows import FieldNames
from tidegate.records.files.summary import Show, policy_numbers, print_summary, show_progress

_NAMES_SHOWN = 12
_TEXT_SHOWN = 120
_EXAMPLE = '{"at": "2001-01-01T00:00:00Z"}'
_FIXES = {
    "timestamp": (
        "write it as ISO-8601, hh:mm[:ss] or a number since 1970, and after 1970-01-01T00:00 (so 00:00 alone is none); "
        "see --timestamp-format",
        _EXAMPLE,
    ),
    "arrival": ("each record needs one; or name another field with --arrival", '{"EventEnqueuedUtcTime": "2001-01-01T00:00:00Z"}'),
    "partition": ("it is a number, a text, true, false or null", '{"PartitionId": 3}'),
    "end": ("it is written like the event time, and only a start edge has none", '{"until": "2001-01-01T00:00:00Z"}'),
    "json": ("each line holds one JSON object, or the file is one array of them; see --input-format", _EXAMPLE),
    "object": ("each line holds one JSON object", _EXAMPLE),
    "columns": ("each row has as many columns as the header; see --delimiter", ""),
    "encoding": ("write the file in UTF-8", ""),
    "value": ("store it in a type that JSON has", ""),
    "quote": ('close the quote, or write a quote inside of text as ""; a record may have 100 lines', ""),
    "key_too_long": (f"the value of --over may have {KEY_BYTES_MAX:,} bytes", ""),
    "too_long": ("a record may have 64 MiB", ""),
}


class OrderFieldError(OrderFileError):
    """A file lacks a field that its records need, or none of its records can be read."""

    default_code = "TG-ORDER-FIELD"


class OrderReport:
    """The report of one run; *path* is the name of the file."""

    def __init__(self, path: str, *, as_json: bool) -> None:
        self._path, self._as_json = path, as_json
        self._began_s = time.monotonic()

    def progress(self, records: FileRecords) -> AbstractContextManager[Show]:
        """Show the progress of reading; see :func:`tidegate.records.files.summary.show_progress`."""
        return show_progress([(f"order {self._path}", records)], is_shown=not self._as_json)

    def print_summary(self, walk: FileWalk) -> None:
        """Write the summary to standard error."""
        summary, names = walk.summary, walk.names
        counts, seconds = summary.policies, time.monotonic() - self._began_s
        numbers = {
            "event": "end",
            "file": self._path,
            "records": summary.records,
            "ordered": counts.released,
            "partitions": walk.partitions,
            **policy_numbers(counts),
            "unreadable": dict(sorted(summary.unreadable.items())),
            "first_unreadable": {reason: line for reason, (line, _) in sorted(summary.first_bad.items())},
            "arrival_clamps": counts.arrival_clamps,
            "time_jumps": summary.jumps.as_dict(),
            "arrival_field": format_path(names.arrival) if names.arrival else None,
            "partition_field": format_path(names.partition) if names.partition else None,
            "seconds": round(seconds, 3),
            "records_per_second": round(summary.records / max(seconds, 1 / SECOND_US)),
        }
        print_summary(numbers, _sentences, as_json=self._as_json)

    def check(self, walk: FileWalk) -> None:
        """Raise OrderFieldError if no record has a field that a flag names, or no record can be read."""
        summary, names = walk.summary, walk.names
        if not summary.records:
            return
        if names.is_resolved and names.missing:
            raise _missing_field_error(self._path, names)
        if sum(summary.unreadable.values()) == summary.records:
            raise _unreadable_error(self._path, summary)


def _sentences(numbers: dict[str, Any]) -> Iterator[str]:
    dropped, unreadable = numbers["dropped"], numbers["unreadable"]
    size = f"{_count_of(numbers['records'], 'record')} of {_count_of(numbers['partitions'], 'partition')}"
    yield f"{numbers['file']}: {size} in {numbers['seconds']:.1f} s ({numbers['records_per_second']:,} a second)"
    adjusted = {"early": numbers["early_adjusted"], "late": numbers["late_adjusted"], "out of order": numbers["out_of_order_adjusted"]}
    yield f"  in order    {numbers['ordered']:>12,}{_list_counts(adjusted, ' (adjusted)')}"
    yield f"  dropped     {sum(dropped.values()):>12,}{_list_counts(dropped)}"
    yield f"  unreadable  {sum(unreadable.values()):>12,}{_list_counts(unreadable)}"
    for reason, line in numbers["first_unreadable"].items():
        yield f"    {reason.replace('_', ' ')}: first at line {line}; {_FIXES[reason][0]}"
    if numbers["records"]:
        yield f"  arrival: {numbers['arrival_field'] or 'none'}, partition: {numbers['partition_field'] or 'none, all is 0'}"
    if numbers["arrival_field"] is None and numbers["records"]:
        yield "  no arrival field: only reorder applies, nothing is early or late (see --arrival)"
    if numbers["arrival_clamps"]:
        yield f"  {_count_of(numbers['arrival_clamps'], 'arrival')} before the largest one so far of the partition, counted as that one"
    for sentence in describe_file_jumps(numbers["time_jumps"]):
        yield f"  {sentence}"


def _count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _list_counts(counts: dict[str, int], ending: str = "") -> str:
    parts = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return f"  {', '.join(parts)}{ending}" if parts else ""


def _missing_field_error(path: str, names: FieldNames) -> OrderFieldError:
    missing = sorted(names.missing)
    hints = "".join(dict.fromkeys(hint for field in missing if (hint := _suggest(field, names.available))))
    shown = ", ".join(format_path((name,)) for name in names.available[:_NAMES_SHOWN])
    more = ", ..." if len(names.available) > _NAMES_SHOWN else ""
    there = f"there are: {shown}{more}" if names.available else "the first record has no field"
    what = f"no record has the field {', '.join(map(format_path, missing))}"
    return OrderFieldError(what, where=f"{path}:1", fix=f"{hints}{there}")


def _suggest(path: FieldPath, seen: list[str]) -> str:
    """Return a guess at the field that was meant by a path that no record has."""
    dotted, (top, *inner) = ".".join(path), path
    if inner and dotted in seen:
        return f"did you mean {format_path((dotted,))}? "
    if any(name.isdecimal() for name in inner):
        return "an array cannot be indexed; "
    if inner and top in seen:
        return f"{format_path((top,))} is there, but never with {format_path(tuple(inner))} in it; "
    spelled = {name.lower(): name for name in seen}
    near = [(spelled[name], *inner) for name in get_close_matches(top.lower(), spelled, 1)]
    near = near or [(spelled[name],) for name in get_close_matches(dotted.lower(), spelled, 1)]
    return f"did you mean {format_path(near[0])}? " if near else ""


def _unreadable_error(path: str, summary: Summary) -> OrderFieldError:
    reason, (line, text) = min(summary.first_bad.items(), key=lambda item: item[1][0])
    fix, example = _FIXES[reason]
    shown = text[:_TEXT_SHOWN].decode(errors="replace")
    what = f"none of the {summary.records:,} records can be read; the first for its {reason.replace('_', ' ')}: {shown}"
    return OrderFieldError(what, code="TG-ORDER-UNREADABLE", where=f"{path}:{line}", fix=fix, example=example)


def check_header(path: str, names: FieldNames, records: FileRecords) -> None:
    """Raise OrderFieldError if a header or schema lacks a named field. Called before anything is written."""
    names.missing = {path for path in names.missing if not records.has_field(path)}
    if names.missing:
        raise _missing_field_error(path, names)
