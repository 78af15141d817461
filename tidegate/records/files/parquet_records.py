"""Records in Parquet: each row becomes a JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.records.files.blocks import Block, Fault, OrderFileError, check_names, spelled_in
from tidegate.records.payloads.arrow_values import JSON_OPTIONS, converter_of


class ParquetRecords:
    """The rows of a Parquet file; raises OrderFileError if it cannot be read as Parquet."""

    def __init__(self, path: str, source: BinaryIO, block_bytes: int) -> None:
        self._path, self._rows, self.done = path, max(1, block_bytes // 256), 0
        with self._parquet_errors():
            self._file = pq.ParquetFile(source)
        self.columns: list[str] | None = list(self._file.schema_arrow.names)
        check_names(self.columns, path)
        self.total: int = self._file.metadata.num_rows

    def has_field(self, path: Sequence[str]) -> bool:
        fields = {column.name: column.type for column in self._file.schema_arrow}
        for name in path:
            spelled = spelled_in(fields, name)
            if spelled is None:
                return False
            kind = _plain_type(fields[spelled])
            if pa.types.is_map(kind):
                # Its names are not known before it is read.
                return True
            fields = {member.name: member.type for member in kind} if pa.types.is_struct(kind) else {}
        return True

    @contextmanager
    def _parquet_errors(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:  # pyarrow's errors are kinds of these
            what = f"the file cannot be read as Parquet: {error}"
            fix = "is it whole, and Parquet at all? Standard input cannot be; --input-format names the format"
            raise OrderFileError(what, code="TG-ORDER-FORMAT", where=self._path, fix=fix) from error

    def blocks(self) -> Iterator[Block]:
        batches = self._file.iter_batches(batch_size=self._rows)
        # Not a for loop: errors of reading a batch must be translated, errors of the caller must not.
        while True:
            with self._parquet_errors():
                batch = next(batches, None)
            if batch is None:
                return
            block = Block()
            for row, fields in enumerate(_batch_rows(batch), start=self.done + 1):
                _add_row(block, row, fields)
            self.done += batch.num_rows
            yield block


def _batch_rows(batch: Any) -> Iterable[dict[str, Any] | None]:
    """
    Return the rows of a record batch, times as UTC without a zone, maps as records, bytes as text; a row is None if one of its values is
    outside Python's range.
    """
    schema = pa.schema([pa.field(column.name, _plain_type(column.type)) for column in batch.schema])
    table = pa.Table.from_batches([batch]).cast(schema, safe=False)
    try:
        rows: list[dict[str, Any] | None] = table.to_pylist()
    except (ValueError, OverflowError):
        # One bad value fails the whole batch, so the rows are converted one by one.
        rows = [_single_row(table.slice(row, 1)) for row in range(table.num_rows)]
    for name, convert in [(column.name, converter_of(column.type)) for column in schema]:
        if convert is not None:
            for row in rows:
                if row is not None:
                    row[name] = convert(row[name])
    return rows


def _single_row(table: Any) -> dict[str, Any] | None:
    try:
        return dict(table.to_pylist()[0])
    except (ValueError, OverflowError):
        return None


def _plain_type(kind: Any) -> Any:
    """Return the type without time zones and nanoseconds, also inside of lists, maps and structs."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, _plain_type(member.type)) for member in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return kind


def _add_row(block: Block, row: int, fields: dict[str, Any] | None) -> None:
    if fields is None:
        block.add(row, b"null", None, Fault.VALUE)
        return
    try:
        text = orjson.dumps(fields, default=_json_form, option=JSON_OPTIONS)
    except TypeError:
        block.add(row, b"null", None, Fault.VALUE)
        return
    block.add(row, text, fields)


def _json_form(value: object) -> object:
    """Return the JSON form of a value that JSON lacks: decimals with all their digits, the text of others."""
    if isinstance(value, Decimal):
        # A fragment is written as it is; a float would lose digits.
        return orjson.Fragment(str(value)) if value.is_finite() else None
    return str(value)
