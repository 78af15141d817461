"""
The format of an input's payloads, fixed before a job starts, and the reader that each worker creates for it.

A format travels pickled inside a job, so it holds the text of a schema, not the path of its file. Readers are imported only on use: a
process that only plans needs none of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ordering.columns.framed_payloads import payloads_of
from ordering.errors import SettingError
from tidegate.basics.bounded_files import read_file_text
from tidegate.language.expressions.field_columns import FieldColumns
from tidegate.language.expressions.tree import Field

if TYPE_CHECKING:  # `tidegate local` runs without settings
    from tidegate.platform.settings.tables.inputs import InputSettings
    from tidegate.platform.settings.tables.schema_registry import SchemaRegistrySettings


class PayloadReader(Protocol):
    """Reads the payloads of one input."""

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        """Extract *fields* from *payloads*, a binary column. Whether a payload is bad does not depend on *fields*."""
        ...


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """
    The format of one input's payloads: json, csv, avro (with the text of its schema file) or avro_registry (with secrets in *registry*).
    *headers* are the names of the headers in the frame before each payload (:mod:`ordering.columns.framed_payloads`); empty: no frame.
    """

    name: str = "json"
    csv_columns: tuple[str, ...] = ()
    csv_delimiter: str = ","
    avro_schema: str = ""
    registry: SchemaRegistrySettings | None = field(default=None, repr=False)
    headers: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: InputSettings, registry: SchemaRegistrySettings | None = None) -> PayloadFormat:
        """Return the format of an input, its schema file read and checked; no registry is contacted. Raises SettingError."""
        if settings.format == "avro":
            return cls("avro", avro_schema=_read_schema(settings))
        if settings.format == "avro_registry":
            assert registry is not None, "settings without a registry were refused"
            from tidegate.records.payloads.schema_registry import connect

            connect(registry)
            return cls("avro_registry", registry=registry)
        return cls(settings.format, settings.csv_columns, settings.csv_delimiter)

    def fingerprint(self) -> dict[str, str]:
        """Return the contents of files that shape events, for the checkpoint's binding (see :meth:`InputSettings.fingerprint`)."""
        return {"avro_schema": hashlib.sha256(self.avro_schema.encode()).hexdigest()} if self.name == "avro" else {}


class _FramedReader:
    """Reads payloads with frames before them."""

    def __init__(self, reader: PayloadReader) -> None:
        self._reader = reader

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        return self._reader.extract(payloads_of(payloads), fields)


# The default of inputs, and the format of query results.
JSON = PayloadFormat()


def _read_schema(settings: InputSettings) -> str:
    from tidegate.records.payloads.avro_schema import UnusableSchema, parse_avro_schema, schema_error

    path = Path(settings.avro_schema or "")
    where = f"inputs.{settings.name}.avro_schema"
    try:
        text = read_file_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"the Avro schema cannot be read: {error}", code="TG-AVRO-SCHEMA", where=where, fix="give the path of an .avsc file in UTF-8"
        ) from None
    try:
        parse_avro_schema(text)
    except UnusableSchema as problem:
        raise schema_error(problem, f"{path}{problem.place}") from None
    return text


@lru_cache(maxsize=64)
def reader_of(payloads: PayloadFormat) -> PayloadReader:
    """Return the reader of a format, one for each process: it caches schemas."""
    if payloads.headers:
        return _FramedReader(reader_of(replace(payloads, headers=())))
    if payloads.name == "csv":
        from tidegate.records.payloads.csv_records import CsvReader

        return CsvReader(payloads.csv_columns, payloads.csv_delimiter)
    if payloads.name == "avro":
        from tidegate.records.payloads.avro_records import AvroReader
        from tidegate.records.payloads.avro_schema import parse_avro_schema

        return AvroReader(parse_avro_schema(payloads.avro_schema))
    if payloads.name == "avro_registry":
        from tidegate.records.payloads.registry_records import RegistryReader
        from tidegate.records.payloads.schema_registry import SchemaRegistry

        assert payloads.registry is not None, "a format of that name has one"
        return RegistryReader(SchemaRegistry(payloads.registry))

    return JsonReader()


class JsonReader:
    """Reads payloads that are JSON objects. Without a field to extract nothing is parsed, and no payload is bad."""

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        from tidegate.language.expressions.json_members import extract

        return extract(payloads, fields)
