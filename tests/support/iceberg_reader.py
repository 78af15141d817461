"""
The rows of an Iceberg table by its format alone: the catalog's row names the metadata, that names the manifests, and these the files.

It knows nothing of pyiceberg, and reads tables of SQL catalogs without deletes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

_KINDS = {
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


def read_metadata(location: str) -> dict[str, Any]:
    """Return the metadata that a catalog names."""
    metadata: dict[str, Any] = json.loads(_path(location).read_text("utf-8"))
    return metadata


def read_rows(location: str) -> list[dict[str, Any]]:
    """Return the rows of the current snapshot of the table with this metadata."""
    metadata = read_metadata(location)
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    kinds = {field["id"]: (field["name"], _KINDS[field["type"]]) for field in schema["fields"]}
    snapshots = [each for each in metadata["snapshots"] if each["snapshot-id"] == metadata.get("current-snapshot-id")]
    rows: list[dict[str, Any]] = []
    for snapshot in snapshots:
        for manifest in _read_avro(snapshot["manifest-list"]):
            assert manifest["content"] == 0, "there are no deletes"
            for entry in _read_avro(manifest["manifest_path"]):
                if entry["status"] != 2:
                    rows += _read_file(entry["data_file"]["file_path"], kinds)
    return rows


def _path(location: str) -> Path:
    return Path(urlsplit(location).path)


def _read_avro(location: str) -> list[dict[str, Any]]:
    with _path(location).open("rb") as file:
        return [dict(record) for record in fastavro.reader(file)]  # type: ignore[arg-type]


def _read_file(location: str, kinds: dict[int, tuple[str, pa.DataType]]) -> list[dict[str, Any]]:
    # A column is known by its number, which the file keeps beside its name.
    found = pq.ParquetFile(_path(location)).read()
    places = {int(field.metadata[b"PARQUET:field_id"]): place for place, field in enumerate(found.schema)}
    columns = {
        name: found.column(places[number]).cast(kind) if number in places else pa.nulls(len(found), kind)
        for number, (name, kind) in kinds.items()
    }
    return [dict(row) for row in pa.table(columns).to_pylist()]
