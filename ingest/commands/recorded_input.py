"""What the commands that look at recorded events share: which input or file is meant, and reading it while a line tells how far it is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ordering.errors import SettingError
from ordering.ticks import parse_duration
from tidegate.platform.observe.console import live_line
from tidegate.platform.observe.terminal import standard_error

if TYPE_CHECKING:
    from ingest.tuning.recorded_topic import Span
    from ordering.tuning.recording import Recording
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings

Read = TypeVar("Read")

# The flags that say what the fields of a file mean (:class:`ingest.tuning.recorded_file.FileColumns`).
ArrivalFlag = Annotated[
    str | None, typer.Option(help="Of a file: the field with the arrival, or an expression: 'DATEADD(minute, delay, date)'.")
]
PartitionFlag = Annotated[str | None, typer.Option(help="Of a file: the field with the input partition.")]
ByArrivalFlag = Annotated[bool, typer.Option("--by-arrival", help="Take a file's records in the order of their arrivals.")]
TimestampFormatFlag = Annotated[str, typer.Option(help="Of a file: auto, iso, s, ms, us or ns.")]
InputFormatFlag = Annotated[str | None, typer.Option(help="Of a file: ndjson, csv or parquet, if its ending does not say.")]
DelimiterFlag = Annotated[str | None, typer.Option(help="Of a file: the delimiter of a CSV.")]


def names_input(settings: Settings, name: str) -> bool:
    """Tell whether *name* is an input, else a file. Raises SettingError: it is neither."""
    if name not in settings.inputs and not Path(name).exists():
        raise no_such_name(settings, name)
    return name in settings.inputs


def no_such_name(settings: Settings, name: str, more: str = "") -> SettingError:
    """Return the error of a name that is neither an input's nor a file's; *more* is what else could be named."""
    known = ", ".join(sorted(settings.inputs)) or "(none is configured)"
    what, fix = f"there is neither an input nor a file {name}", f"name one of: {known}; or a file that is there{', ' * bool(more)}{more}"
    return SettingError(what, code="TG-SETTING-NAME", where="INPUT", fix=fix)


def require_time(timestamp_by: str | None, name: str, command: str) -> str:
    """Return the field of a file's event time. Raises SettingError: no flag names it."""
    if timestamp_by is None:
        fix = "name the field with the event time"
        example = f"tidegate {command} {name} --timestamp-by at"
        raise SettingError(
            f"{name} is a file, and nothing names its event time", code="TG-SETTING-FLAG", where="--timestamp-by", fix=fix, example=example
        )
    return timestamp_by


def parse_bound(text: str | None, flag: str, now_us: int) -> int | None:
    """Return a bound of a span, microseconds: a time, or an age as in ``6h``; None: no bound. Raises TickRangeError: it is neither."""
    from tidegate.platform.checkpoint.output_start import parse_time_flag

    if text is None:
        return None
    if re.fullmatch(r"(\d+(\.\d+)?(us|ms|s|m|h|d))+", text):
        return max(now_us - parse_duration(text), 0)
    return parse_time_flag(text, flag)


def read_input(
    settings: Settings,
    name: str,
    start: str | None,
    until: str | None,
    limit: int,
    read: Callable[[Settings, str, Admin, Span, Callable[[int], None]], Read],
) -> Read:
    """Return what *read* makes of the records of an input in a span of time."""
    from ingest.tuning.recorded_topic import Span
    from tidegate.platform.kafka.admin import Admin

    now_us = time.time_ns() // 1_000
    span = Span(parse_bound(start, "--from", now_us), parse_bound(until, "--until", now_us), limit)
    admin = Admin.connect(settings.kafka)
    count = 0
    with live_line(standard_error(), f"reading {name}", limit) as show:

        def on_records(more: int) -> None:
            nonlocal count
            count += more
            show(f"{count:,} records", count)

        return read(settings, name, admin, span, on_records)


def require_events(recording: Recording, path: str, timestamp_by: str) -> None:
    """Raise OrderFileError if a file has no events."""
    from tidegate.records.files.blocks import OrderFileError

    if not recording.events:
        what = f"no record of {path} has an arrival and an event time in {timestamp_by}"
        fix = "correct --timestamp-by and --arrival; --timestamp-format says how times are written"
        raise OrderFileError(what, code="TG-ORDER-FIELD", where=path, fix=fix, example="--timestamp-by at")
