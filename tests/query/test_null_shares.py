"""Columns that most recent records have no value in: counted by sample, told once, with the records that lack the field."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ordering.columns.framed_payloads import frame_payload
from query.null_shares import SAMPLE_RECORDS, NullCounts
from query.plan.nodes import Plan
from query.progress import QueryProgress
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.metrics.null_shares import NullShare
from tidegate.platform.observe.reports import BucketReport, ColumnNulls, InputNulls
from tidegate.records.payloads.formats import JSON, PayloadFormat

SQL = (
    "SELECT country, SUM(revenue) AS total, SUM(place.lat) AS lat INTO out FROM orders TIMESTAMP BY at "
    "GROUP BY country, TumblingWindow(hour, 1)"
)
BEFORE, AFTER = {"country": "de", "revenue": 5, "place": {"lat": 1}}, {"country": "de", "turnover": 5, "place": {}}


def plans() -> tuple[Plan, ...]:
    """Return a script that reads three columns of one input."""
    return bind_outputs(parse_script(SQL, "q.sql"), [InputSchema("orders", is_free=True)])


def column(*records: dict[str, Any] | None, times: int = 1) -> pa.ChunkedArray:
    """Return payloads as a bucket reads them."""
    return pa.chunked_array([[b"broken" if record is None else json.dumps(record).encode() for record in records] * times], pa.binary())


class Clock:
    """A clock that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_null_and_absent_fields_are_counted_apart() -> None:
    """A null is a value that the source wrote; a renamed field is not there at all; fields in records are found by their path."""
    counts = NullCounts(plans())
    counts.look_at("orders", column(BEFORE, {**BEFORE, "revenue": None}, AFTER, times=2))
    assert counts.report() == {"orders": InputNulls(6, {"revenue": ColumnNulls(4, 2), "place.lat": ColumnNulls(2, 2)})}


def test_a_field_of_another_case_is_no_absent_one() -> None:
    """Names ignore case, so such a record has a value, and a null in it is a null."""
    counts = NullCounts(plans())
    counts.look_at(
        "orders", column({"country": "a", "Revenue": 3, "place": {"lat": 1}}, {"country": "a", "Revenue": None, "place": {"lat": 1}})
    )
    assert counts.report() == {"orders": InputNulls(2, {"revenue": ColumnNulls(1, 0)})}


def test_headers_before_payloads_and_other_formats_are_counted_too() -> None:
    """Of formats with a schema every record has every field: it is NULL or not."""
    framed = [frame_payload([("revenue", b'"revenue"')], json.dumps(record).encode()) for record in (BEFORE, AFTER)]
    counts = NullCounts(plans())
    counts.look_at("orders", pa.chunked_array([framed], pa.binary()), PayloadFormat(headers=("revenue",)))
    assert counts.report() == {"orders": InputNulls(2, {"revenue": ColumnNulls(1, 1), "place.lat": ColumnNulls(1, 1)})}
    counts = NullCounts(plans())
    lines = pa.chunked_array([[b"de,5,1", b"de,,1"]], pa.binary())
    counts.look_at("orders", lines, PayloadFormat("csv", ("country", "revenue", "place.lat")))
    assert counts.report()["orders"].columns["revenue"] == ColumnNulls(1, 0)


def test_the_newest_records_of_a_piece_are_the_sample_and_old_counts_go() -> None:
    """However much a piece holds, the cost stays; what was five minutes ago says nothing of now."""
    clock = Clock()
    counts = NullCounts(plans(), clock)
    counts.look_at("orders", pa.chunked_array([*column(AFTER, times=1_000).chunks, *column(BEFORE, times=SAMPLE_RECORDS).chunks]), JSON)
    assert counts.report() == {"orders": InputNulls(SAMPLE_RECORDS, {})}
    clock.now_s = 200
    counts.look_at("orders", column(AFTER, times=10))
    assert counts.report()["orders"].records == SAMPLE_RECORDS + 10
    clock.now_s = 360
    assert counts.report() == {"orders": InputNulls(10, {"revenue": ColumnNulls(10, 10), "place.lat": ColumnNulls(10, 10)})}
    clock.now_s = 1_000
    assert counts.report() == {}


def test_small_pieces_that_follow_at_once_are_counted_together() -> None:
    """An open batch reads a few records at a time, of several partitions; the last of them may be followed by silence."""
    clock = Clock()
    counts = NullCounts(plans(), clock)
    for piece in (BEFORE, AFTER, BEFORE, AFTER):
        counts.look_at("orders", column(piece))
    assert counts.report()["orders"] == InputNulls(4, {"revenue": ColumnNulls(2, 2), "place.lat": ColumnNulls(2, 2)})
    counts.look_at("orders", column(BEFORE, times=SAMPLE_RECORDS - 1))
    counts.look_at("orders", column(AFTER, times=SAMPLE_RECORDS - 2))
    assert counts.report()["orders"].records == 4 + SAMPLE_RECORDS, "the newest of them"
    assert counts.report()["orders"].columns["revenue"] == ColumnNulls(SAMPLE_RECORDS, SAMPLE_RECORDS)


def test_a_column_beyond_the_bound_is_told_once_and_again_after_it_was_well() -> None:
    """Over all buckets together, and only if there are enough records."""
    progress = QueryProgress(2)

    def report(bucket: int, nulls: int) -> BucketReport:
        found = InputNulls(60, {"revenue": ColumnNulls(nulls, nulls)})
        return BucketReport(bucket, totals={"events": 1}, nulls={"orders": found})

    def told() -> list[NullShare]:
        return progress.pop_null_columns(progress.null_columns(0.5))

    progress.accept_reports([report(0, 60)])
    assert told() == [], "60 records are too few"
    progress.accept_reports([report(1, 1)])
    (found,) = told()
    assert found == NullShare("orders", "revenue", 120, 61, 61)
    assert (
        found.as_dict()["in_words"] == "51 % of the recent records of orders are NULL in revenue; 51 % have no such field: was it renamed?"
    )
    assert told() == []
    progress.accept_reports([report(1, 0)])
    assert told() == []
    progress.accept_reports([report(1, 9)])
    assert [each.nulls for each in told()] == [69]
    assert progress.null_columns(1.0) == []
