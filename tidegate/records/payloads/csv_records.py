"""
CSV: one record a payload, as in RFC 4180, with column names from the configuration.

Law: a record is values separated by the delimiter. A value in double quotes may contain anything, with each quote doubled; a value without
quotes contains neither quotes nor line ends. One line end after the record is ignored. A record with more or fewer values than columns is
bad: its values cannot be matched to columns. A value is text; an empty value without quotes is NULL.

Arrow splits records without quotes all at once; those with quotes or line ends are read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText
from tidegate.language.expressions.field_columns import FieldColumns, decode_texts
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.language.expressions.variant import Variant

NOT_CSV = QueryReason.NOT_CSV.text()
WRONG_COUNT = QueryReason.WRONG_COUNT.text()


class CsvReader:
    """Reads payloads that are CSV records; *columns* are the names of the values in order."""

    def __init__(self, columns: Sequence[str], delimiter: str = ",") -> None:
        self._columns, self._delimiter = tuple(columns), delimiter
        plain = rf'[^"\r\n{re.escape(delimiter)}]*'
        # Possessive: otherwise the regular expression would store a backtracking state for each quote of a payload.
        self._value = re.compile(rf'"([^"]*+(?:""[^"]*+)*+)"|({plain}+)')

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        """Extract *fields* from *payloads*; a field that is no column is NULL."""
        texts, reasons = decode_texts(payloads)
        odd = pc.fill_null(pc.match_substring_regex(texts, '["\r\n]'), False).to_numpy(zero_copy_only=False)
        simple = np.flatnonzero(~odd & texts.is_valid().to_numpy(zero_copy_only=False))
        chosen, values = self._split(texts if len(simple) == len(texts) else texts.take(pa.array(simple)))
        reasons |= dict.fromkeys(np.delete(simple, chosen).tolist(), WRONG_COUNT)
        rows, parsed = simple[chosen], self._read_one_by_one(texts, np.flatnonzero(odd), reasons)
        return FieldColumns.of({field: self._column(field, len(texts), rows, values, parsed) for field in fields}, reasons)

    def index_of(self, path: Sequence[str]) -> int | None:
        """Return the column of a field path: the one of that spelling, else the first that differs in case only."""
        name = ".".join(path)
        if name in self._columns:
            return self._columns.index(name)
        return next((index for index, column in enumerate(self._columns) if column.lower() == name.lower()), None)

    def _split(self, texts: pa.Array) -> tuple[Ints, pa.Array]:
        """Return the rows of *texts* with the right number of values, and the values of these rows, row after row."""
        width = len(self._columns)
        parts = pc.split_pattern(texts, self._delimiter, max_splits=width)
        fitting = pc.equal(pc.list_value_length(parts), width)
        if not pc.all(fitting).as_py():
            parts = parts.filter(fitting)
        return np.flatnonzero(fitting.to_numpy(zero_copy_only=False)), parts.flatten()

    def _read_one_by_one(self, texts: pa.Array, rows: Ints, reasons: dict[int, ReasonText]) -> dict[int, list[str | None]]:
        records = {}
        for row in rows.tolist():
            record = self._record(texts[row].as_py())
            if record is None or len(record) != len(self._columns):
                reasons[row] = NOT_CSV if record is None else WRONG_COUNT
            else:
                records[row] = record
        return records

    def _record(self, text: str) -> list[str | None] | None:
        """Return the values of one record, or None if it is malformed."""
        text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
        values: list[str | None] = []
        position = 0
        while (match := self._value.match(text, position)) is not None:
            quoted, bare = match.groups()
            values.append((bare or None) if quoted is None else quoted.replace('""', '"'))
            position = match.end()
            if position == len(text):
                return values
            if text[position] != self._delimiter or len(values) > len(self._columns):
                return None if text[position] != self._delimiter else values
            position += 1
        return None

    def _column(self, field: Field, length: int, rows: Ints, values: pa.Array, parsed: dict[int, list[str | None]]) -> Variant:
        index = self.index_of(field.path)
        if index is None:
            return Variant.of(length, {})
        column = values.take(pa.array(np.arange(index, len(values), len(self._columns))))
        column = pc.if_else(pc.equal(column, ""), None, column)
        if parsed:
            column = pa.concat_arrays([column, pa.array([record[index] for record in parsed.values()], column.type)])
        if len(rows) < length:
            source = np.full(length, -1, dtype=np.int64)
            source[rows] = np.arange(len(rows))
            source[list(parsed)] = np.arange(len(rows), len(column))
            column = column.take(pa.array(source, mask=source < 0))
        return Variant.of(length, {Kind.NVARCHAR: column.cast(pa.string())})
