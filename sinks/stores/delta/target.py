"""
The columns of a Delta table: whether they fit those of the query, and results with the table's columns.

Law: a table that is there is only changed if ``schema_evolution`` says so, and then only by columns added at its end, all of them null.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from sinks.parquet_columns import Column, make_schema
from sinks.stores.base import Refusal, Rows, RowsRefused, StoreError
from tidegate.settings.tables.stores.delta import DeltaSettings

# With it a table forgets transactions, and so how far it has come.
_FORGETS = "delta.setTransactionRetentionDuration"


def find_missing(table: DeltaTable, settings: DeltaSettings, columns: Sequence[Column]) -> list[Field]:
    """
    Return the columns of the query that the table lacks and that may be added. Raises StoreError (TG-STORE-COLUMN): the table does not fit
    the query or the settings.
    """
    there = {field.name: field for field in table.schema().fields}
    _check_partitions(table, settings)
    wanted = Schema.from_arrow(make_schema(columns)).fields
    missing = [field for field in wanted if field.name not in there]
    for field in missing:
        _check_addable(settings, field, there)
    for field in wanted:
        if field.name in there and there[field.name].type != field.type:
            what = f"has column {field.name} of type {_type_name(there[field.name])}, and the query's is {_type_name(field)}"
            raise _column_error(settings, what, f"make the column {_type_name(field)}, or CAST in the query")
    names = {field.name for field in wanted}
    for field in there.values():
        if not field.nullable and field.name not in names:
            what = f"needs a value in column {field.name}, which the query does not have"
            raise _column_error(settings, what, "select it in the query, or let the column be null")
    return missing


def check_partition_columns(settings: DeltaSettings, columns: Sequence[Column]) -> None:
    """Check that a table with these columns can be made. Raises StoreError (TG-STORE-COLUMN)."""
    names = [name for name, _ in columns]
    for name in settings.partition_by:
        if name not in names:
            raise _column_error(settings, f"has no column {name}, which partition_by names", "name columns of the query")
    for name in names:
        if len([other for other in names if other.lower() == name.lower()]) > 1:
            raise _column_error(settings, f"cannot have two columns {name.lower()}: case does not count", "give one of them another name")


def fit_rows(table: DeltaTable, rows: Rows, typed: pa.Table) -> pa.Table:
    """Return results with all columns of the table, in its order. Raises RowsRefused: a column that must have a value has none."""
    fields = table.schema().fields
    for field in fields:
        if not field.nullable:
            nulls = typed.column(field.name).is_null().to_pylist()
            places = [place for place, is_null in zip(rows.position.tolist(), nulls, strict=True) if is_null]
            if places:
                raise RowsRefused([Refusal(place, f"column {field.name} may not be null") for place in places])
    kinds = pa.schema(table.schema().to_arrow())
    return pa.table(
        {
            field.name: typed.column(field.name) if field.name in typed.column_names else pa.nulls(len(typed), kinds.field(field.name).type)
            for field in fields
        }
    )


def _check_partitions(table: DeltaTable, settings: DeltaSettings) -> None:
    metadata = table.metadata()
    if settings.partition_by and list(settings.partition_by) != metadata.partition_columns:
        told = f"is partitioned by {', '.join(metadata.partition_columns) or 'no column'}, and partition_by says otherwise"
        raise _column_error(settings, told, f"set partition_by = {metadata.partition_columns}, or write another table")
    if metadata.configuration.get(_FORGETS):
        fix = f"ALTER TABLE delta.`{settings.path}` UNSET TBLPROPERTIES ('{_FORGETS}')"
        what = f"table {settings.path} forgets transactions ({_FORGETS}), and with them which results it has"
        raise StoreError(what, code="TG-STORE-REFUSED", where=settings.path, fix=fix)


def _check_addable(settings: DeltaSettings, field: Field, there: dict[str, Field]) -> None:
    alike = [name for name in there if name.lower() == field.name.lower()]
    if alike:
        fix = f"name it {alike[0]} in the query"
        raise _column_error(settings, f"has column {alike[0]}, and the query's is {field.name}: case does not count", fix)
    if settings.schema_evolution != "add":
        fix = f'set schema_evolution = "add", or: ALTER TABLE delta.`{settings.path}` ADD COLUMNS ({field.name} {_type_name(field)})'
        raise _column_error(settings, f"has no column {field.name}, which the query has", fix)


def _type_name(field: Field) -> str:
    kind = getattr(field.type, "type", "")
    return kind if isinstance(kind, str) and kind else str(field.type)


def _column_error(settings: DeltaSettings, what: str, fix: str) -> StoreError:
    return StoreError(f"table {settings.path} {what}", code="TG-STORE-COLUMN", where=settings.path, fix=fix)
