"""
The results of an output's table in a store, as they stand at one moment (:mod:`sinks.stores.reading`).

Law: each row of the table comes once. Rows of tables have no numbers: they are put in the order of their time and then of all columns, if
the time is known, so that two readings of the same rows are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pyarrow as pa

from ordering.errors import RefusedError
from sinks.stores.base import StoreContext, Stream
from sinks.stores.reading import ReadableStore
from sinks.stores.registry import make_store
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column, make_schema


def read_table(settings: Settings, output: OutputSettings, kind: str, topic: Topic, columns: Sequence[Column]) -> pa.Table:
    """
    Return the rows of the store *kind* of an output. Raises RefusedError (TG-READ-SOURCE): such stores cannot be read; StoreError or
    UnreachableError: this one cannot be read now.
    """
    context = StoreContext(output.name, Stream(topic.name, topic.topic_id, topic.partitions), columns, settings.redis)
    store = make_store(kind, output.stores[kind], context)
    if not isinstance(store, ReadableStore):
        what, fix = f"a store of kind {kind} cannot be read back", "read the topic that feeds it"
        raise RefusedError(what, code="TG-READ-SOURCE", where=f"outputs.{output.name}.{kind}", fix=fix, example='source="topic"')
    pieces: list[pa.Table] = []
    with closing(store):
        store.reader().read(pieces.append)
    schema = make_schema(columns)
    return pa.concat_tables([_as_declared(piece, schema) for piece in pieces]) if pieces else schema.empty_table()


def _as_declared(piece: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the declared types; a column with a value that has not its type stays text."""
    arrays, fields = [], []
    for field in schema:
        column = piece.column(field.name) if field.name in piece.column_names else pa.nulls(len(piece), field.type)
        try:
            column = column.cast(field.type)
        except pa.ArrowInvalid:
            field = field.with_type(column.type)
        arrays.append(column)
        fields.append(field)
    return pa.table(arrays, schema=pa.schema(fields))
