"""
Avro with schema-registry framing: a zero byte, the schema's id in four bytes (big-endian), then one value of that schema.

Law: every payload is read by the schema that it names. It is bad if it has no such frame, the registry does not know the id, the schema
cannot be used, or the rest is not one value of it. See :mod:`tidegate.payloads.schema_registry` for a registry that does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.expressions.field_columns import NO_PAYLOAD, FieldColumns
from tidegate.expressions.tree import Field
from tidegate.payloads.avro_records import NOT_AVRO, extract_columns, read_value
from tidegate.payloads.schema_registry import NoSchema, SchemaRegistry

NO_FRAME = "payload has no schema-registry frame"
FRAME_BYTES = 5


class RegistryReader:
    """Reads framed payloads with the schemas of a registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        """Extract *fields* from *payloads*. Waits as long as the registry does not answer."""
        reasons: dict[int, str] = {}
        values: list[Any] = [None] * len(payloads)
        schemas: dict[bytes, Any] = {}
        for row, payload in enumerate(payloads.to_pylist()):
            if payload is None:
                reasons[row] = NO_PAYLOAD
                continue
            frame = payload[:FRAME_BYTES]
            if len(frame) < FRAME_BYTES or frame[0]:
                reasons[row] = NO_FRAME
                continue
            if frame not in schemas:
                schemas[frame] = self._registry.schema(int.from_bytes(frame[1:], "big"))
            schema = schemas[frame]
            if isinstance(schema, NoSchema):
                reasons[row] = schema.reason
            elif (read := read_value(schema, payload, FRAME_BYTES)) is None:
                reasons[row] = NOT_AVRO
            else:
                (values[row],) = read
        return extract_columns(values, fields, reasons)
