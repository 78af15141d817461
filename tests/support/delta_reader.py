"""
The rows of a Delta Lake table by the public protocol alone: its log is replayed action by action, its files are read by pyarrow.

It knows nothing of delta-rs, and reads tables whose log is all there as JSON, without deletion vectors or renamed columns.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

_KINDS = {
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def read_actions(table: Path) -> list[dict[str, Any]]:
    """Return the actions of all commits, in order."""
    log = sorted(path for path in (table / "_delta_log").glob("*.json") if re.fullmatch(r"\d{20}", path.stem))
    assert [int(path.stem) for path in log] == list(range(len(log))), "each version is there once"
    return [json.loads(line) for path in log for line in path.read_text("utf-8").splitlines()]


def read_rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of the table's newest version; none if there is no table."""
    files: dict[str, dict[str, Any]] = {}
    columns: dict[str, pa.DataType] = {}
    for action in read_actions(table) if table.exists() else []:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            columns = {field["name"]: _KINDS[field["type"]] for field in schema["fields"]}
        if "add" in action:
            files[action["add"]["path"]] = action["add"]
        if "remove" in action:
            del files[action["remove"]["path"]]
    return [row for add in files.values() for row in _read_file(table, add, columns)]


def _read_file(table: Path, add: dict[str, Any], columns: dict[str, pa.DataType]) -> list[dict[str, Any]]:
    # ParquetFile, not read_table: that one would find the values of partitions in the path.
    found = pq.ParquetFile(table / unquote(add["path"])).read()
    for name, kind in columns.items():
        if name in add["partitionValues"]:
            # An empty value is null, whatever the type.
            column = pa.array([add["partitionValues"][name] or None] * len(found), pa.string()).cast(kind)
        elif name in found.column_names:
            column = found.column(name).cast(kind)
        else:
            column = pa.nulls(len(found), kind)
        found = found.drop_columns([name] if name in found.column_names else []).append_column(name, column)
    return [dict(row) for row in found.to_pylist()]
