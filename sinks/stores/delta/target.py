"""Checks the columns of a Delta table by :mod:`sinks.stores.table_columns`, and tells errors of delta-rs apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

from sinks.stores.base import StoreError
from sinks.stores.object_store_errors import translated
from sinks.stores.table_columns import TableColumn, TargetTable
from tidegate.platform.settings.tables.stores.delta import DeltaSettings
from tidegate.records.result_columns import Column, make_schema

# With this property a table forgets old transactions, and with them the progress.
_FORGETS = "delta.setTransactionRetentionDuration"


def find_missing(table: DeltaTable, settings: DeltaSettings, columns: Sequence[Column]) -> list[Field]:
    """
    Return the columns of the query that the table lacks and that may be added. Raises StoreError (TG-STORE-COLUMN): the table does not fit
    the query or the settings.
    """
    target = _target_of(settings)
    metadata = table.metadata()
    target.check_partitions(metadata.partition_columns, settings.partition_by)
    if metadata.configuration.get(_FORGETS):
        fix = f"ALTER TABLE {target.sql_name} UNSET TBLPROPERTIES ('{_FORGETS}')"
        what = f"table {settings.path} forgets transactions ({_FORGETS}), and with them which results it has"
        raise StoreError(what, code="TG-STORE-REFUSED", where=settings.path, fix=fix)
    wanted = Schema.from_arrow(make_schema(columns)).fields
    existing = [_column_of(field) for field in table.schema().fields]
    missing = target.find_missing(existing, [_column_of(field) for field in wanted], may_add=settings.schema_evolution == "add")
    return [field for field in wanted if field.name in missing]


def check_new(settings: DeltaSettings, columns: Sequence[Column]) -> None:
    """Check that a table with these columns can be made. Raises StoreError (TG-STORE-COLUMN)."""
    _target_of(settings).check_new([name for name, _ in columns], settings.partition_by)


def schema_of(table: DeltaTable) -> pa.Schema:
    """Return the table's columns."""
    return pa.schema(table.schema().to_arrow())


def _target_of(settings: DeltaSettings) -> TargetTable:
    return TargetTable(settings.path, f"delta.`{settings.path}`")


def _column_of(field: Field) -> TableColumn:
    kind = getattr(field.type, "type", "")
    return TableColumn(field.name, kind if isinstance(kind, str) and kind else str(field.type), field.nullable)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise errors of delta-rs as UnreachableError or StoreError, except that of a commit that lost to another one."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        is_users = isinstance(error, DeltaProtocolError | SchemaMismatchError | PermissionError)
        raise translated(error, "Delta Lake", where, is_users=is_users) from None
