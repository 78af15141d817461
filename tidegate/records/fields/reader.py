"""The reader of an input's fields: the format and the event time decide which source it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ordering.policies import Shape
from tidegate.language.expressions.syntax.plain_path import listed_paths, plain_path
from tidegate.language.expressions.tree import Expr, Field
from tidegate.records.fields.columns import Fields, FieldSource, assemble_fields, over_name
from tidegate.records.fields.json_source import JsonSource
from tidegate.records.fields.values import ReaderSource
from tidegate.records.payloads.formats import JSON, PayloadFormat, reader_of

if TYPE_CHECKING:  # `tidegate local` runs without settings
    from tidegate.platform.settings.tables.inputs import InputSettings


class FieldReader:
    """
    Reads event time (*timestamp_by*, a field path or expression; None: the arrival time is used), end and substream key from payloads.
    *timestamp_format* is auto, iso, s, ms, us or ns; *types* are the declared types of fields, for an expression. QueryError if the event
    time cannot be computed from a payload.
    """

    def __init__(
        self,
        timestamp_by: str | None,
        timestamp_format: str,
        over: str | None,
        shape: Shape = Shape.POINT,
        end: str | None = None,
        payloads: PayloadFormat = JSON,
        types: Mapping[str, str] | None = None,
    ) -> None:
        self._format, self._shape = timestamp_format, shape
        exprs: dict[str, Expr] = {}
        if timestamp_by is not None:
            exprs["time"] = _event_time_expr(timestamp_by, types or {})
        if end is not None:
            exprs["end"] = Field(tuple(end.split(".")))
        for place, path in enumerate(listed_paths(over) if over is not None else ()):
            exprs[over_name(place)] = Field(path)
        self._source = _choose_source(exprs, payloads)

    @classmethod
    def of(cls, settings: InputSettings, payloads: PayloadFormat) -> FieldReader:
        return cls(
            settings.timestamp_by, settings.timestamp_format, settings.over, settings.event_shape, settings.end, payloads, settings.fields
        )

    def read(self, values: object) -> Fields:
        return assemble_fields(self._source.extract(as_binary(values)), self._format, self._shape)


def as_binary(payloads: object) -> pa.Array:
    """Return payloads, in any kind of column, as one binary array."""
    if isinstance(payloads, pa.ChunkedArray):
        return single_chunk(payloads)
    if isinstance(payloads, pa.Array):
        return payloads
    return pa.array(np.asarray(payloads, dtype=object), type=pa.binary())


def single_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of a table in one piece."""
    merged = column.combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


def _event_time_expr(text: str, types: Mapping[str, str]) -> Expr:
    path = plain_path(text)
    if path is not None:
        return Field(path)
    # The SQL parser is slow to import, and few inputs need it.
    from tidegate.language.expressions.binding.input_schema import InputSchema
    from tidegate.language.expressions.binding.setting_expressions import bind_event_time, path_of

    bound = bind_event_time(text, "timestamp_by", InputSchema("input", fields=types))
    path = path_of(bound)
    # If the event time is just a field, its declared type matters only to queries.
    return bound if path is None else Field(path)


def _choose_source(exprs: Mapping[str, Expr], payloads: PayloadFormat) -> FieldSource:
    if payloads.name != "json":
        return ReaderSource(reader_of(payloads), exprs)
    return JsonSource(exprs)
