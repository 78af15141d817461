"""
Columns that a script names and the records do not have: probably misspelled, since a missing member is NULL and no error.

``tidegate plan``, ``tidegate lint --config`` and a start look at the newest records, a running job at the first ones that it reads.

Law: findings are warnings. A column counts as absent if no record of a sample has a value in it; nothing is found in an empty sample.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ordering.errors import TidegateError
from query.columns.large_tables import combine_column
from query.config import Feed, QueryPlan
from query.plan.columns_read import leaves_read
from query.plan.nodes import Plan
from tidegate.language.expressions.syntax.errors import suggest
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.formats import JSON, PayloadFormat, reader_of

if TYPE_CHECKING:  # Kafka's client is imported by whoever reads a topic: scripts on files need none
    from tidegate.platform.kafka.admin import Admin

SAMPLE_RECORDS = 1_000
# Large payloads: a start neither holds nor parses more of them, and the first of the newest records show their members as well.
SAMPLE_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
# A start waits no longer for the sample.
_SILENCE_MAX_S = 2.0
# Members of records deeper than this are not suggested.
_DEPTH_MAX = 5
CODE = "TG-LINT-ABSENT"
_FIX = "correct the name, if it is misspelled"


def absent_columns(
    plans: Sequence[Plan], input: str, payloads: pa.Array, payload_format: PayloadFormat = JSON
) -> Iterator[tuple[str, str]]:
    """Yield (warning, fix) for each field of an input in which no record of a sample has a value."""
    if not len(payloads):
        return
    names = _names(payloads[len(payloads) - 1].as_py())
    for field in _without_values(leaves_read(plans, input, Field), payloads, payload_format):
        fix = suggest(str(field), [name for name in names if name != str(field)], _FIX)
        yield f"{field} has no value in {len(payloads):,} records of {input}: it is NULL", fix


def _without_values(fields: Sequence[Field], payloads: pa.Array, payload_format: PayloadFormat) -> list[Field]:
    if not fields:
        return []
    columns = reader_of(payload_format).extract(payloads, fields).columns
    return [field for field in fields if not columns[field].parts]


class FirstRecords:
    """
    The first ``SAMPLE_RECORDS`` records of each input that a bucket reads in one process, and the columns without a value in them.

    It is not saved with the bucket: no result depends on it.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._counts: Counter[str] = Counter()
        self._absent: dict[str, list[Field]] = {}

    def look_at(self, input: str, payloads: pa.ChunkedArray, payload_format: PayloadFormat = JSON) -> None:
        """Take more records of an input into account, in the order in which they are read."""
        wanted = payloads.slice(0, SAMPLE_RECORDS - self._counts[input])
        if len(wanted):
            absent = self._absent.get(input)
            fields = leaves_read(self._plans, input, Field) if absent is None else absent
            self._absent[input] = _without_values(fields, combine_column(wanted), payload_format)
            self._counts[input] += len(wanted)

    def report(self, *, is_finished: bool) -> dict[str, tuple[str, ...]]:
        """Return the absent columns of each input of which enough records have been read; at the end of the input all are enough."""
        return {
            input: tuple(map(str, self._absent[input])) for input, count in self._counts.items() if is_finished or count >= SAMPLE_RECORDS
        }


def first_records_warning(input: str, column: str) -> tuple[str, str]:
    """Return (warning, fix) for a column that a running job has not met."""
    return f"{column} has no value in the first records of {input} that were read: it is NULL", _FIX


def absent_in_topics(layout: QueryPlan, admin: Admin) -> list[tuple[str, str]]:
    """Return (warning, fix) for each field without a value in the newest records of the topics that a query reads."""
    from confluent_kafka import KafkaException

    warnings: list[tuple[str, str]] = []
    for feed in layout.feeds:
        # If a topic cannot be read, the job that has to read it reports that.
        with suppress(TidegateError, KafkaException):
            payloads = _newest_payloads(layout, feed, admin)
            warnings += absent_columns(layout.plans, feed.input, payloads, replace(feed.payloads, headers=()))
    return warnings


def _newest_payloads(layout: QueryPlan, feed: Feed, admin: Admin) -> pa.Array:
    """Return the payloads of the newest events in the longest partition of a topic; of large ones the first ``SAMPLE_BYTES``."""
    from tidegate.ordered_topic.decode import decode
    from tidegate.platform.kafka.ranges import RangeReader

    ends = admin.ends([(feed.topic, number) for number in range(feed.partitions)])
    partition = max(ends, key=lambda partition: ends[partition])
    first, pieces, size = max(ends[partition] - SAMPLE_RECORDS, 0), [], 0
    with RangeReader(layout.kafka, *partition, headers=True, prefetch_bytes=_CHUNK_BYTES) as reader:
        for records in reader.read(first, ends[partition], chunk_bytes=_CHUNK_BYTES, silence_max_s=_SILENCE_MAX_S):
            values = decode(records, *partition).events.value
            pieces.append(values)
            size += values.nbytes
            if size >= SAMPLE_BYTES:
                break
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def _names(payload: bytes | None) -> list[str]:
    """Return the names of a JSON record's members, ``place.lat`` of members of records too; none if it is none."""
    # A record nested too deeply for Python's parser is a dead letter anyway.
    with suppress(ValueError, RecursionError):
        record = json.loads(payload or b"")
        return _paths(record) if isinstance(record, dict) else []
    return []


def _paths(record: dict[str, object], before: str = "", depth: int = 1) -> list[str]:
    paths = []
    for name, value in record.items():
        paths.append(before + name)
        if isinstance(value, dict) and depth < _DEPTH_MAX:
            paths += _paths(value, f"{before}{name}.", depth + 1)
    return paths
