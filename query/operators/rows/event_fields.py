"""
The fields of an input's events, extracted once for all steps that read the input.

The steps of a program over one input share an :class:`EventFields` that knows which fields they use. The first step that asks for fields
of a batch makes one pass over its payloads for all of them.

Law: a step gets what it would get alone. What is read of a payload, and whether it can be read, does not depend on the other fields asked
for; names that differ in case only are extracted apart, since a payload may have both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ordering.columns.framed_payloads import header_texts, payloads_of
from query.columns.large_tables import combine_column
from tidegate.language.expressions.field_columns import FieldColumns
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.formats import JSON, PayloadFormat, reader_of


class EventFields:
    """The fields of the events of one input, whose payloads have the format *payloads*; steps use *fields*, or ask for others later."""

    def __init__(self, payloads: PayloadFormat = JSON, fields: Iterable[Field] = ()) -> None:
        self.payloads = payloads
        # As the first step to use a field spells it.
        self._used = {field: field for field in fields}
        self._events: pa.Table | None = None
        self._extracted = FieldColumns.of({}, {})

    def extract(self, events: pa.Table, fields: Sequence[Field]) -> FieldColumns:
        """Return columns for *fields*, and perhaps for others; without a field nothing is parsed, and no payload is bad."""
        if not fields:
            return FieldColumns.of({}, {})
        spelled = [self._used.setdefault(field, field) for field in fields]
        if any(field.path != known.path for field, known in zip(fields, spelled, strict=True)):
            return reader_of(self.payloads).extract(combine_column(events["value"]), fields)
        if events is not self._events or not all(field in self._extracted.columns for field in fields):
            self._extracted = reader_of(self.payloads).extract(combine_column(events["value"]), tuple(self._used))
            self._events = events
        return self._extracted

    def header(self, events: pa.Table, name: str) -> pa.StringArray:
        """Return the values of a header of the events' records."""
        assert name in self.payloads.headers, f"the input is read without the header {name}"
        return header_texts(combine_column(events["value"]), name)

    def bare_payloads(self, events: pa.Table) -> pa.Array:
        """Return the payloads of events as their producer wrote them."""
        payloads = combine_column(events["value"])
        return payloads_of(payloads) if self.payloads.headers else payloads

    def forget_events(self) -> None:
        """Forget the last batch, so that its payloads need not stay in memory."""
        self._events, self._extracted = None, FieldColumns.of({}, {})
