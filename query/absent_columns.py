"""
Columns that a script names and the newest records do not have: probably misspelled, since a missing member is NULL and no error.

Law: findings are warnings. A column counts as absent if no record of a sample has a value in it; nothing is found in an empty sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from ordering.errors import TidegateError
from query.columns.decode import decode
from query.config import Feed, QueryPlan
from query.plan.nodes import Plan, exprs_in, scan_of, walk
from tidegate.expressions.syntax.errors import suggest
from tidegate.expressions.tree import Field
from tidegate.kafka.admin import Admin
from tidegate.kafka.ranges import RangeReader
from tidegate.payloads.formats import JSON, PayloadFormat, reader_of

SAMPLE_RECORDS = 1_000
# A start waits no longer for the sample.
_SILENCE_MAX_S = 2.0
CODE = "TG-LINT-ABSENT"


def fields_read(plans: Sequence[Plan], input: str) -> tuple[Field, ...]:
    """Return the payload fields of an input that *plans* read, each once."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root) if len(node.children) == 1)
    reading = [node for node in nodes if (scan := scan_of(node)) is not None and scan.input == input]
    return tuple(dict.fromkeys(part for node in reading for part in exprs_in(node) if isinstance(part, Field)))


def absent_columns(
    plans: Sequence[Plan], input: str, payloads: pa.Array, payload_format: PayloadFormat = JSON
) -> Iterator[tuple[str, str]]:
    """Yield (warning, fix) for each field of an input in which no record of a sample has a value."""
    fields = fields_read(plans, input)
    if not len(payloads) or not fields:
        return
    columns = reader_of(payload_format).extract(payloads, fields).columns
    names = _names(payloads[len(payloads) - 1].as_py())
    for field in fields:
        if not columns[field].parts:
            fix = suggest(str(field), [name for name in names if name != str(field)], "correct the name, if it is misspelled")
            yield f"{field} has no value in {len(payloads):,} records of {input}: it is NULL", fix


def absent_in_topics(layout: QueryPlan, admin: Admin) -> list[tuple[str, str]]:
    """Return (warning, fix) for each field without a value in the newest records of the topics that a query reads."""
    found: list[tuple[str, str]] = []
    for feed in layout.feeds:
        # A topic that cannot be read is told by what has to read it.
        with suppress(TidegateError):
            found += absent_columns(layout.plans, feed.input, _newest_payloads(layout, feed, admin), feed.payloads)
    return found


def _newest_payloads(layout: QueryPlan, feed: Feed, admin: Admin) -> pa.Array:
    """Return the payloads of the newest events in the longest partition of a topic."""
    ends = admin.ends([(feed.topic, number) for number in range(feed.partitions)])
    partition = max(ends, key=lambda partition: ends[partition])
    reader, pieces = RangeReader(layout.kafka, *partition, headers=True), []
    try:
        first = max(ends[partition] - SAMPLE_RECORDS, 0)
        for records in reader.read(first, ends[partition], silence_max_s=_SILENCE_MAX_S) if ends[partition] else ():
            pieces += decode(records, *partition).events["value"].chunks
    finally:
        reader.close()
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def _names(payload: bytes | None) -> list[str]:
    """Return the names of a JSON record's members; none if it is none."""
    with suppress(ValueError):
        record = json.loads(payload or b"")
        return list(record) if isinstance(record, dict) else []
    return []
