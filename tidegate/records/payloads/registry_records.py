"""
Avro with schema-registry framing: a zero byte, the schema's id in four bytes (big-endian), then one value of that schema.

Law: every payload is read by the schema that it names. It is bad if it has no such frame, the registry does not know the id, the schema
cannot be used, or the rest is not one value of it. See :mod:`tidegate.records.payloads.schema_registry` for a registry that does not
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText
from tidegate.language.expressions.field_columns import NO_PAYLOAD, FieldColumns
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.avro_records import Piece, join_rows, read_rows
from tidegate.records.payloads.schema_registry import NoSchema, SchemaRegistry

NO_FRAME = QueryReason.NO_FRAME.text()
FRAME_BYTES = 5


class RegistryReader:
    """Reads framed payloads with the schemas of a registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        """Extract *fields* from *payloads*. Waits as long as the registry does not answer."""
        reasons: dict[int, ReasonText] = {}
        rows_by_frame: dict[bytes, list[int]] = {}
        for row, frame in enumerate(pc.binary_slice(payloads, 0, FRAME_BYTES).to_pylist()):
            if frame is None:
                reasons[row] = NO_PAYLOAD
            elif len(frame) < FRAME_BYTES or frame[0]:
                reasons[row] = NO_FRAME
            else:
                rows_by_frame.setdefault(frame, []).append(row)
        return join_rows(len(payloads), self._read(payloads, rows_by_frame, fields, reasons), fields, reasons)

    def _read(
        self, payloads: pa.Array, rows_by_frame: Mapping[bytes, list[int]], fields: Sequence[Field], reasons: dict[int, ReasonText]
    ) -> Iterator[Piece]:
        for frame, rows in rows_by_frame.items():
            schema = self._registry.schema(int.from_bytes(frame[1:], "big"))
            if isinstance(schema, NoSchema):
                reasons |= dict.fromkeys(rows, schema.reason)
            else:
                yield from read_rows(schema, payloads, np.array(rows), fields, reasons, FRAME_BYTES)
