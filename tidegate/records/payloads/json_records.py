"""JSON: payload bytes -> fields, one object a payload, as :mod:`tidegate.language.expressions.json_members` reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.language.expressions.field_columns import FieldColumns
from tidegate.language.expressions.json_members import extract
from tidegate.language.expressions.tree import Field


class JsonReader:
    """Reads payloads that are JSON objects. Without a field to extract nothing is parsed, and no payload is bad."""

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        return extract(payloads, fields)
