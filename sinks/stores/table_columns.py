"""
The columns of a table whose format has a schema of its own: whether they fit those of the query, and results with the table's columns.

Law: an existing table is only changed if ``schema_evolution`` says so, and then only by columns added at its end, all of them null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from sinks.stores.base import Refusal, Rows, RowsRefused, StoreError


class TableColumn(NamedTuple):
    """A column: its name, its type as the format names it, and whether it may be null."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table by its name in settings (*name*) and in Spark's SQL (*sql_name*). Checks raise StoreError (TG-STORE-COLUMN)."""

    name: str
    sql_name: str

    def check_new(self, names: Sequence[str], partition_by: Sequence[str]) -> None:
        """Check that a table with columns of these names can be made."""
        for name in partition_by:
            if name not in names:
                raise self.column_error(f"has no column {name}, which partition_by names", "name columns of the query")
        for name in names:
            if len([other for other in names if other.lower() == name.lower()]) > 1:
                raise self.column_error(f"cannot have two columns {name.lower()}: case does not count", "give one of them another name")

    def find_missing(self, existing: Sequence[TableColumn], wanted: Sequence[TableColumn], *, may_add: bool) -> list[str]:
        """Return the names of the query's columns that the table lacks and that may be added."""
        types = {column.name: column.type for column in existing}
        missing = [column for column in wanted if column.name not in types]
        for column in missing:
            self._check_addable(column, types, may_add)
        for column in wanted:
            if types.get(column.name, column.type) != column.type:
                what = f"has column {column.name} of type {types[column.name]}, and the query's is {column.type}"
                raise self.column_error(what, f"make the column {column.type}, or CAST in the query")
        names = {column.name for column in wanted}
        for column in existing:
            if not column.nullable and column.name not in names:
                what = f"needs a value in column {column.name}, which the query does not have"
                raise self.column_error(what, "select it in the query, or let the column be null")
        return [column.name for column in missing]

    def check_partitions(self, existing: Sequence[str], partition_by: Sequence[str]) -> None:
        """Check that the table is partitioned by the columns of ``partition_by``, if that is set."""
        if partition_by and list(partition_by) != list(existing):
            what = f"is partitioned by {', '.join(existing) or 'no column'}, and partition_by says otherwise"
            raise self.column_error(what, f"set partition_by = {list(existing)}, or write another table")

    def column_error(self, what: str, fix: str) -> StoreError:
        return StoreError(f"table {self.name} {what}", code="TG-STORE-COLUMN", where=self.name, fix=fix)

    def _check_addable(self, column: TableColumn, types: dict[str, str], may_add: bool) -> None:
        alike = [name for name in types if name.lower() == column.name.lower()]
        if alike:
            fix = f"name it {alike[0]} in the query"
            raise self.column_error(f"has column {alike[0]}, and the query's is {column.name}: case does not count", fix)
        if not may_add:
            fix = f'set schema_evolution = "add", or: ALTER TABLE {self.sql_name} ADD COLUMNS ({column.name} {column.type})'
            raise self.column_error(f"has no column {column.name}, which the query has", fix)


def fit_rows(schema: pa.Schema, rows: Rows, typed: pa.Table) -> pa.Table:
    """Return results with all columns of a table, in the table's order. Raises RowsRefused: a column that may not be null is null."""
    for field in schema:
        if not field.nullable:
            nulls = typed.column(field.name).is_null().to_pylist()
            places = [place for place, is_null in zip(rows.position.tolist(), nulls, strict=True) if is_null]
            if places:
                raise RowsRefused([Refusal(place, f"column {field.name} may not be null") for place in places])
    return pa.table(
        {field.name: typed.column(field.name) if field.name in typed.column_names else pa.nulls(len(typed), field.type) for field in schema}
    )
