"""
The results of an output's files.

Law: a file is there whole or not at all, and holds the results of one span of System.Timestamp and one partition; so each result is read
once. Files come by span, then by partition; the rows of each as the sink has written them, by (System.Timestamp, key).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ordering.errors import SettingError
from ordering.ticks import format_duration, parse_tick
from sinks.file_places import FilePlace
from sinks.stores.base import Rows
from tidegate.platform.settings.tables.outputs import OutputSettings

_NAME = re.compile(r"(?:.*/)?(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d(?:\.\d+)?)Z\.p(\d{5})\.(ndjson|parquet)")


def check_spans(output: OutputSettings, since_us: int | None, until_us: int | None, *, has_times: bool) -> None:
    """Raise SettingError (TG-READ-TIME) if a span would have to be cut, and its results do not say at what time they are."""
    cut = [tick for tick in (since_us, until_us) if tick is not None and tick % output.file_span_us]
    if cut and not has_times:
        span = format_duration(output.file_span_us)
        what = f"the files of {output.name} cover {span} each, and do not say the time of a result within it"
        fix = f"give times at whole multiples of {span}, select System.Timestamp() in the query, or read the topic"
        raise SettingError(what, code="TG-READ-TIME", where="since, until", fix=fix)


def list_files(place: FilePlace, span_us: int, since_us: int | None, until_us: int | None, seen: set[str]) -> list[str]:
    """Return the names of the files, without those *seen*, of spans that reach between two instants, in their order."""
    found = []
    for name in set(place.names()) - seen:
        if (match := _NAME.fullmatch(name)) is None:
            continue
        start_us = parse_tick(f"{match[1]}T{match[2]}:{match[3]}:{match[4]}Z") if not name.startswith("1970-01-01T00-00-00Z") else 0
        if (since_us is None or start_us + span_us > since_us) and (until_us is None or start_us < until_us):
            found.append((start_us, match[5], name))
    return [name for _, _, name in sorted(found)]


def read_values(content: bytes) -> Rows:
    """Return the lines of a file of NDJSON as results whose times are not known."""
    lines = content.splitlines()
    none = np.zeros(len(lines), dtype=np.int64)
    return Rows(none, none, none, pa.nulls(len(lines), pa.binary()), pa.array(lines, pa.binary()))


def read_parquet(content: bytes) -> pa.Table:
    """Return the rows of a Parquet file."""
    return pyarrow.parquet.read_table(pa.BufferReader(content))


def raw_rows(table: pa.Table) -> Rows:
    """Return the rows of a file of format ``parquet_json`` as results."""
    system_us = table["system_timestamp"].combine_chunks().cast(pa.int64()).to_numpy()
    none = np.zeros(len(system_us), dtype=np.int64)
    return Rows(none, none, system_us, table["key"].combine_chunks(), table["value"].combine_chunks().cast(pa.binary()))


def iterate_files(place: FilePlace, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each file; one that is gone meanwhile is left out."""
    for name in names:
        try:
            yield name, place.read(name)
        except FileNotFoundError:
            continue
