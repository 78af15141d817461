"""
Inputs of a test as files: rows in memory are written as a file that ``tidegate local`` reads, so both read them in the same way.

Law: an input gives the same events whether it is a list of rows, NDJSON, an Arrow table or a Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from query.local.files import LocalFile, parse_file_flags
from tidegate.records.files.blocks import FileFormat

Row = Mapping[str, Any]
"""An event: its fields, as JSON has them; perhaps ``EventEnqueuedUtcTime`` and ``PartitionId``."""
Rows: TypeAlias = Sequence[Row] | bytes | Path | pa.Table
"""The events of an input in the order in which they come: rows, NDJSON, a file (any ending of ``tidegate local``) or Arrow."""


def write_inputs(inputs: Mapping[str, Rows], folder: Path) -> list[LocalFile]:
    """Return a file for each input; those that are not files yet are written into *folder*."""
    return [_write_input(name, rows, folder) for name, rows in inputs.items()]


def ndjson_of(rows: Iterable[Row]) -> bytes:
    """Return rows as NDJSON."""
    return b"".join(orjson.dumps(dict(row), option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY) for row in rows)


def _write_input(name: str, rows: Rows, folder: Path) -> LocalFile:
    if isinstance(rows, Path):
        return parse_file_flags([f"{name}={rows}"])[0]
    if isinstance(rows, pa.Table):
        path = folder / f"input.{name}.parquet"
        pq.write_table(rows, path)
        return LocalFile(name, str(path), FileFormat.PARQUET)
    path = folder / f"input.{name}.ndjson"
    path.write_bytes(rows if isinstance(rows, bytes) else ndjson_of(rows))
    return LocalFile(name, str(path), FileFormat.NDJSON)
