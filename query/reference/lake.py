"""
Reference data from a table of Delta Lake or Iceberg: its versions become the files of a reference table's ``path``, as Parquet.

The first version that is found counts from the beginning, each later one from the poll that finds it. Each file names the version of the
table whose rows it has, so what a lookup found can be looked up again. A version with the same rows as the newest file is no new one.

Law: a file has all rows of one version, in an order that follows from the rows alone. It is never written again: what a run has found, its
replay finds, whatever becomes of the table.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ordering.errors import RefusedError
from ordering.ticks import SECOND_US
from query.reference.files import files_of_pattern, write_records
from query.reference.version_files import FIRST_S, path_of, write_version
from sinks.stores.registry import import_client
from tidegate.basics.bounded_files import TABLE_BYTES_MAX, FileTooLarge
from tidegate.platform.settings.tables.references import ReferenceSettings

if TYPE_CHECKING:
    from sinks.stores.lake_reader import LakeSnapshot

# The entry of a file's schema that names the version of the table.
VERSION = b"tidegate.version"
# By the newest file of a table: a later version of the table that has the same rows.
_same_rows: dict[Path, str] = {}


def poll_lake(settings: ReferenceSettings, now_us: int) -> list[Path]:
    """
    Look for a new version; write and return it as a file, if there is one. Raises RefusedError (TG-REFERENCE-FILE): there is no such table,
    or it is too large; (TG-REFERENCE-RECORD): a column has no meaning here; StoreError, UnreachableError: as the stores of its kind.
    """
    snapshot = _find(settings)
    there = files_of_pattern(str(settings.path))
    newest = Path(str(there[-1][1])) if there else None
    if newest is not None and snapshot.version in (version_in(newest), _same_rows.get(newest)):
        return []
    where = f"references.{settings.name}"
    if snapshot.size_bytes > TABLE_BYTES_MAX:
        fix = "take a table with the rows that lookups need"
        raise RefusedError(str(FileTooLarge(snapshot.name, TABLE_BYTES_MAX)), code="TG-REFERENCE-FILE", where=where, fix=fix)
    rows = snapshot.read_rows()
    texts, _ = write_records(rows, where)
    order = np.argsort(np.array(texts.to_pylist(), dtype=np.object_), kind="stable")
    if newest is not None and texts.take(pa.array(order)).equals(write_records(pq.read_table(newest), where)[0]):
        _same_rows[newest] = snapshot.version
        return []
    now_s = -(-now_us // SECOND_US)
    path = path_of(settings, FIRST_S if newest is None else max(now_s, there[-1][0] // SECOND_US + 1))
    return [path] if write_version(path, _parquet(rows.take(pa.array(order)), snapshot.version)) else []


def version_in(path: Path) -> str:
    """Return the version of the table whose rows a file has; empty: it does not say."""
    metadata: Mapping[bytes, bytes] = pq.read_schema(path).metadata or {}
    return metadata.get(VERSION, b"").decode()


def _find(settings: ReferenceSettings) -> LakeSnapshot:
    kind = "delta" if settings.delta is not None else "iceberg"
    where = f"references.{settings.name}.{kind}"
    finding = import_client(f"sinks.stores.{kind}.snapshot", kind, where)
    found: LakeSnapshot | None = finding.find_snapshot(settings.delta or settings.iceberg, where)
    if found is None:
        fix = "correct its name, or make it: a lookup needs a version, be it one without rows"
        raise RefusedError("there is no such table", code="TG-REFERENCE-FILE", where=where, fix=fix)
    return found


def _parquet(rows: pa.Table, version: str) -> bytes:
    file = io.BytesIO()
    pq.write_table(rows.replace_schema_metadata({VERSION: version}), file)
    return file.getvalue()
