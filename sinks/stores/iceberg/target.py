"""Checks the columns of an Iceberg table by :mod:`sinks.stores.table_columns`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DoubleType, LongType, NestedField, PrimitiveType, StringType, TimestamptzType

from sinks.stores.table_columns import TableColumn, TargetTable
from tidegate.platform.settings.tables.stores.iceberg import IcebergSettings
from tidegate.records.result_columns import Column, make_schema

_TYPES: Mapping[pa.DataType, PrimitiveType] = {
    pa.bool_(): BooleanType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
    pa.string(): StringType(),
}
# The format numbers partition fields from here.
_PARTITION_ID = 1_000


def types_of(columns: Sequence[Column]) -> Mapping[str, PrimitiveType]:
    """Return the types of the query's columns."""
    return {field.name: _TYPES[field.type] for field in make_schema(columns)}


def find_missing(table: Table, settings: IcebergSettings, columns: Sequence[Column]) -> Mapping[str, PrimitiveType]:
    """
    Return the columns of the query that the table lacks and that may be added. Raises StoreError (TG-STORE-COLUMN): the table does not fit
    the query or the settings.
    """
    target, schema = _target_of(settings), table.schema()
    parted = [
        f"{'' if isinstance(field.transform, IdentityTransform) else f'{field.transform} of '}{schema.find_column_name(field.source_id)}"
        for field in table.spec().fields
    ]
    target.check_partitions(parted, settings.partition_by)
    wanted = types_of(columns)
    existing = [TableColumn(field.name, str(field.field_type), not field.required) for field in schema.fields]
    query = [TableColumn(name, str(kind)) for name, kind in wanted.items()]
    missing = target.find_missing(existing, query, may_add=settings.schema_evolution == "add")
    return {name: wanted[name] for name in missing}


def check_new(settings: IcebergSettings, columns: Sequence[Column]) -> None:
    """Check that a table with these columns can be made. Raises StoreError (TG-STORE-COLUMN)."""
    _target_of(settings).check_new([name for name, _ in columns], settings.partition_by)


def make_layout(settings: IcebergSettings, columns: Sequence[Column]) -> tuple[Schema, PartitionSpec]:
    """Return schema and partitioning of a new table."""
    numbers = {name: number for number, (name, _) in enumerate(columns, start=1)}
    fields = [NestedField(numbers[name], name, kind, required=False) for name, kind in types_of(columns).items()]
    parts = [
        PartitionField(numbers[name], number, IdentityTransform(), name)
        for number, name in enumerate(settings.partition_by, start=_PARTITION_ID)
    ]
    return Schema(*fields), PartitionSpec(*parts)


def _target_of(settings: IcebergSettings) -> TargetTable:
    return TargetTable(settings.table, settings.table)
