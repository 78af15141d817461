"""Reports of stages: what one side writes, the other reads, from the stage's JSON and from Redis alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.ticks import INFINITY, NEVER
from tidegate.platform.observe.published_fields import FieldError, parse_report
from tidegate.platform.observe.reports import (
    BrokenPolicies,
    BucketReport,
    ColumnNulls,
    Gap,
    HeldReport,
    IngestReport,
    InputNulls,
    JumpReport,
    LooksUpFrom,
    Report,
    SubstreamReport,
    Watermark,
)

COUNT = st.integers(0, 2**63 - 1)
TICK = st.integers(NEVER, INFINITY)
NAME = st.text(max_size=5)
TOTALS = st.dictionaries(NAME, COUNT, max_size=3)
SECONDS = st.dictionaries(NAME, st.floats(0, 1e6).map(lambda seconds: round(seconds, 4)), max_size=3)
SUBSTREAMS = st.builds(SubstreamReport, st.none() | NAME, TICK, NAME, TICK, st.none() | COUNT, st.none() | TICK)
INGEST_REPORTS = st.builds(
    IngestReport,
    topic=NAME,
    partition=st.integers(0, 10**9),
    number=COUNT,
    next_offset=COUNT,
    arrival_us=TICK,
    complete_us=TICK,
    held=COUNT,
    substreams=COUNT,
    totals=TOTALS,
    seconds=SECONDS,
    read=COUNT,
    bytes=COUNT,
    breaks=st.builds(BrokenPolicies, COUNT, COUNT, COUNT, COUNT, st.dictionaries(NAME, TICK, max_size=2)),
    watermark=st.builds(Watermark, TICK, TICK, NAME),
    jump=st.none() | st.builds(JumpReport, NAME, NAME, TICK),
    held_events=st.none() | st.builds(HeldReport, st.none() | TICK, st.lists(SUBSTREAMS, max_size=2).map(tuple)),
)
BUCKET_REPORTS = st.builds(
    BucketReport,
    bucket=st.integers(0, 10**9),
    read=COUNT,
    bytes=COUNT,
    complete_us=TICK,
    is_final=st.booleans(),
    totals=TOTALS,
    duplicates=COUNT,
    waiting=st.lists(st.builds(Gap, NAME, COUNT, COUNT, COUNT, st.integers(-1, 2**63 - 1)), max_size=2).map(tuple),
    nulls=st.dictionaries(NAME, st.builds(InputNulls, COUNT, st.dictionaries(NAME, st.builds(ColumnNulls, COUNT, COUNT), max_size=2))),
    absent=st.dictionaries(NAME, st.lists(NAME, max_size=2).map(tuple), max_size=2),
    seconds=SECONDS,
    looks_up_from=st.none() | st.builds(LooksUpFrom, TICK, COUNT),
    delays=st.dictionaries(NAME, st.dictionaries(COUNT, COUNT, max_size=2), max_size=2),
)


@given(INGEST_REPORTS | BUCKET_REPORTS)
def test_a_report_comes_back_as_it_was_from_a_stage_and_from_redis(report: Report) -> None:
    """The driver and the commands see the same."""
    assert type(report).of_json(report.to_json()) == report
    published = json.dumps({**report.as_dict(), "at_ms": 7})
    assert parse_report(*report.place, published) == (report, 7)


def test_json_names_are_those_that_earlier_versions_published() -> None:
    """Commands of another version read them: ``c`` is the instant below which all is complete, and absent members stay absent."""
    plain = {"topic": "a", "partition": 1, "number": 2, "next_offset": 3, "arrival_us": 4, "c": INFINITY, "held": 5, "substreams": 6}
    rest = {"final": True, "totals": {"events_in": 7}, "seconds": {"read": 0.5}, "read": 8, "bytes": 9}
    breaks = {"events": 1, "early": 2, "late": 3, "out_of_order": 4, "median_us": {"late": 5}}
    ingest: dict[str, Any] = {**plain, **rest, "breaks": breaks, "watermark_us": 10, "largest_us": 11, "cause": "event"}
    jump = {"origin": "a-1@2", "cause": "event_time", "by_us": 12}
    top = [{"key": "k", "watermark_us": 1, "cause": "floor", "largest_us": 2, "held": 3, "held_from_us": None}]
    for members in (ingest, {**ingest, "jump": jump}, {**ingest, "held_from_us": None}, {**ingest, "held_from_us": 1, "top": top}):
        assert IngestReport.of_dict(members).to_json() == json.dumps(members, separators=(",", ":"))
    bucket: dict[str, Any] = {"bucket": 1, "read": 2, "bytes": 3, "c": 4, "final": False, "totals": {"events": 5}, "duplicates": 6}
    bucket |= {"waiting": [["a", 1, 2, 3, -1]], "nulls": {"a": [9, {"b": [2, 1]}]}, "absent": {"a": ["b"]}, "seconds": {"compute": 0.5}}
    for members in (bucket, {**bucket, "looks_up_from": [7, 8]}, {**bucket, "delays": {"out": [[120, 2]]}}):
        assert BucketReport.of_dict(members).to_json() == json.dumps(members, separators=(",", ":"))


def test_a_report_that_lacks_members_says_what_is_known() -> None:
    """A job of another version, or somebody else, has published it: nothing is complete by it, and its watermark is that of its CTIs."""
    assert parse_report("a", 3, '{"at_ms": 1}') == (IngestReport("a", 3), 1)
    assert parse_report("a", 3, '{"at_ms": 1, "held": null, "later": [1]}') == (IngestReport("a", 3), 1)
    report, _ = parse_report("a", 3, '{"at_ms": 1, "c": 5}')
    assert (report.complete_us, report.watermark_us) == (5, 5)
    assert IngestReport("a", 3).complete_us == BucketReport(3).complete_us == NEVER


def test_a_topic_may_be_called_bucket() -> None:
    """Its partitions and a query's buckets have fields of the same names."""
    for report in (IngestReport("bucket", 0, next_offset=5), BucketReport(0, duplicates=5)):
        assert parse_report("bucket", 0, json.dumps({**report.as_dict(), "at_ms": 1}))[0] == report


def test_the_place_of_a_report_is_that_of_its_field() -> None:
    """A report may have been copied there."""
    report, _ = parse_report("b", 7, json.dumps({**IngestReport("a", 3).as_dict(), "at_ms": 1}))
    assert report.place == ("b", 7)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"read": -1}, "read"),
        ({"number": "x"}, "number"),
        ({"largest_us": 2**63}, "largest_us"),
        ({"breaks": {"early": "many"}}, "breaks.early"),
        ({"breaks": []}, "breaks"),
        ({"top": [{"key": "k"}]}, "top.0.watermark_us"),
    ],
)
def test_what_is_not_of_its_type_is_named(members: dict[str, Any], why: str) -> None:
    """Whoever reads a report need not look again."""
    with pytest.raises(FieldError, match=why):
        parse_report("a", 0, json.dumps({"at_ms": 1, **members}))
