"""
Inputs of a test as files: rows in memory are written as a file that ``tidegate local`` reads, so both read them in the same way.

Law: an input gives the same events whether it is a list of rows, NDJSON, Arrow or a Parquet file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from query.local.files import LocalFile, open_file_records, parse_file_flags
from tidegate.records.files.blocks import FileFormat

Row = Mapping[str, Any]
"""An event: its fields, as JSON has them; perhaps ``EventEnqueuedUtcTime`` and ``PartitionId``."""
_BLOCK_BYTES = 1 << 20


class ArrowStream(Protocol):
    """What gives its rows as Arrow: a table or batch of pyarrow, a data frame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Rows: TypeAlias = Sequence[Row] | bytes | str | Path | ArrowStream
"""
The events of an input in the order in which they come: rows, NDJSON, Arrow, or a file (any ending of ``tidegate local``). A text without
``{`` is the path of a file.
"""


def write_inputs(inputs: Mapping[str, Rows], folder: Path, role: str = "input") -> list[LocalFile]:
    """Return a file for each input; those that are not files yet are written into *folder*, with their *role* in front of the name."""
    return [_write_input(name, rows, folder, role) for name, rows in inputs.items()]


def copy_inputs(inputs: Mapping[str, Rows], folder: Path, role: str) -> None:
    """Write each input into *folder*, also one that is a file already."""
    for name, file in zip(inputs, write_inputs(inputs, folder, role), strict=True):
        path = Path(file.path)
        if path.parent != folder:
            shutil.copyfile(path, folder / f"{role}.{name}{path.suffix}")


def read_rows(rows: Rows) -> list[Row]:
    """Return the rows of an input; OrderFileError: its file cannot be read."""
    if isinstance(rows, Sequence) and not isinstance(rows, (bytes, str)):
        return list(rows)
    with TemporaryDirectory(prefix="tidegate-testing-") as folder:
        (file,) = write_inputs({"rows": rows}, Path(folder))
        with open_file_records(file, _BLOCK_BYTES) as records:
            payloads = [payload for block in records.blocks() for payload in block.payloads().to_pylist()]
    return [orjson.loads(payload) for payload in payloads]


def ndjson_of(rows: Iterable[Row]) -> bytes:
    """Return rows as NDJSON."""
    return b"".join(orjson.dumps(dict(row), option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY) for row in rows)


def _write_input(name: str, rows: Rows, folder: Path, role: str) -> LocalFile:
    if isinstance(rows, str):
        rows = rows.encode() if "{" in rows or not rows.strip() else Path(rows)
    if isinstance(rows, Path):
        return parse_file_flags([f"{name}={rows}"], f"--{role}")[0]
    if hasattr(rows, "__arrow_c_stream__"):
        path = folder / f"{role}.{name}.parquet"
        pq.write_table(pa.table(rows), path)
        return LocalFile(name, str(path), FileFormat.PARQUET)
    path = folder / f"{role}.{name}.ndjson"
    path.write_bytes(rows if isinstance(rows, bytes) else ndjson_of(rows))
    return LocalFile(name, str(path), FileFormat.NDJSON)
