"""``tidegate order``: the time model on files. What comes out is the model's; how the file was cut or written changes nothing."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import compute_story
from support.repository import ROOT
from support.stack.warm_jobs import HOST
from support.strategies import GOLDEN, TOLL_VARIANTS, policies, toll_expected
from typer.testing import CliRunner

from ingest.commands.order import order
from ingest.files.walk import FileWalk, format_ticks
from ordering.policies import Policies, Shape
from ordering.testing import Record
from ordering.ticks import SECOND_US, format_tick, parse_tick
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.language.json_columns import json_fields
from tidegate.platform.observe.console import report_errors
from tidegate.records.files import blocks
from tidegate.records.files.blocks import FileFormat
from tidegate.records.files.fields import format_path, parse_path
from tidegate.records.files.files import open_records
from tidegate.records.files.rows import FieldNames, OrderPlan, Rows

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(order))
DEEP_FLAGS = ["--timestamp-by", "at", "--over", "k"]
TOLL = str(GOLDEN / "toll.csv")
TOLL_FLAGS = ["--timestamp-by", "event_time", "--arrival", "arrival_time", "--early", "5m", "--late", "5m", "--reorder", "2m"]


@dataclass
class Run:
    """What one call of the command gave."""

    code: int
    lines: list[dict[str, Any]]
    raw: bytes
    errors: str
    dropped: list[dict[str, Any]] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        """Return one field of every ordered event."""
        return [line["event"][name] for line in self.lines]


def run(*arguments: str, given: bytes = b"", dropped: Path | None = None) -> Run:
    """Call the command in this process."""
    more = ["--dropped", str(dropped)] if dropped else []
    result = CliRunner().invoke(APP, [*arguments, *more], input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    rejected = [json.loads(line) for line in dropped.read_bytes().splitlines()] if dropped and dropped.exists() else []
    lines = [json.loads(line) for line in result.stdout_bytes.splitlines()]
    return Run(result.exit_code, lines, result.stdout_bytes, result.stderr, rejected)


def written(tmp_path: Path, text: str | bytes, name: str = "log.ndjson") -> str:
    """Write a file and return its path."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize("variant", TOLL_VARIANTS)
def test_the_worked_example_comes_out_as_it_was_written_down(variant: str, tmp_path: Path) -> None:
    """Level 1: events, system times and policies of the golden files; what is held there leaves at the end."""
    flags_of = {"early_off": ["--early", "off"], "early_adjust": ["--early-action", "adjust"], "over_device": ["--over", "device"]}
    flags = flags_of.get(variant, [])
    told = run(TOLL, *TOLL_FLAGS, *flags, dropped=tmp_path / "dropped")
    found = [(int(line["event"]["event_no"]), line["system_timestamp"][11:16], "+".join(line["policies"])) for line in told.lines]
    rejected = [(int(line["event"]["event_no"]), "", line["reason"]) for line in told.dropped]
    expected = [(event, time, names) for _, event, time, names in toll_expected(variant)]
    assert found + rejected == expected
    assert [line["origin"] for line in told.lines] == [[0, event + 1] for event, _, _ in found]


def toll_rows() -> list[dict[str, Any]]:
    """Return the toll log with whole times and its well-known names."""
    with (GOLDEN / "toll.csv").open(newline="") as lines:
        return [
            {
                "no": int(row["event_no"]),
                "at": f"1970-01-01T{row['event_time']}:00Z",
                "EventEnqueuedUtcTime": f"1970-01-01T{row['arrival_time']}:00Z",
                "PartitionId": int(row["event_no"]) % 2,
                "device": row["device"],
            }
            for row in csv.DictReader(lines)
        ]


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> str:
    """Write rows as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_ndjson(rows: list[dict[str, Any]]) -> str:
    """Write rows as lines of JSON."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> str:
    """Write rows as Parquet with typed times."""
    typed = [row | {name: datetime.fromisoformat(row[name]) for name in ("at", "EventEnqueuedUtcTime")} for row in rows]
    pq.write_table(pa.Table.from_pylist(typed), path)
    return str(path)


def test_the_format_of_the_file_makes_no_difference(tmp_path: Path) -> None:
    """JSON, CSV, TSV and Parquet of the same events: the same order, times, policies and partitions."""
    rows = toll_rows()
    flags = ["--timestamp-by", "at", "--late", "5m", "--reorder", "2m", "--over", "device"]
    files = {
        written(tmp_path, as_ndjson(rows)): 0,
        written(tmp_path, as_csv(rows), "log.csv"): 1,
        written(tmp_path, as_csv(rows, "\t"), "log.tsv"): 1,
        as_parquet(tmp_path / "log.parquet", rows): 0,
    }
    told = [
        [
            (line["system_timestamp"], line["origin"][0], line["origin"][1] - first, line["policies"], int(line["event"]["no"]))
            for line in run(path, *flags).lines
        ]
        for path, first in files.items()
    ]
    assert len(told[0]) == 11
    assert told[1:] == [told[0]] * 3


def test_what_the_event_looks_like_depends_on_the_format(tmp_path: Path) -> None:
    """JSON as it stands in the file, CSV as text by column, Parquet as JSON values with times as ISO-8601."""
    rows = [{"at": "2001-01-01T00:00:00Z", "EventEnqueuedUtcTime": "2001-01-01T00:00:00Z", "n": 1}]
    assert run(written(tmp_path, as_csv(rows), "a.csv"), "--timestamp-by", "at").column("n") == ["1"]
    event = run(as_parquet(tmp_path / "a.parquet", rows), "--timestamp-by", "at").lines[0]["event"]
    assert (event["n"], event["at"]) == (1, "2001-01-01T00:00:00Z")


def test_parquet_values_of_every_kind_have_a_json_form(tmp_path: Path) -> None:
    """Nanoseconds, zones, decimals, octets, nesting, and a date that Python cannot hold."""
    table = pa.table(
        {
            "at": pa.array([1_000_000_000_123_456_789, 2_000_000_000_000_000_000], pa.timestamp("ns", "Europe/Berlin")),
            "price": pa.array([1, 2], pa.decimal128(5, 2)),
            "raw": pa.array([b"text", b"\xff\xfe"], pa.binary()),
            "inner": pa.array(
                [{"since": 10**18, "tags": ["a"]}, None], pa.struct([("since", pa.timestamp("ns")), ("tags", pa.list_(pa.string()))])
            ),
            "far": pa.array([0, 4_000_000_000_000_000_000], pa.timestamp("us")),
        }
    )
    path = tmp_path / "kinds.parquet"
    pq.write_table(table, path)
    told = run(str(path), "--timestamp-by", "at", dropped=tmp_path / "dropped")
    (line,) = told.lines
    assert line["system_timestamp"] == "2001-09-09T01:46:40.123456Z"
    event = line["event"]
    assert (event["raw"], event["inner"]) == ("74657874", {"since": "2001-09-09T01:46:40Z", "tags": ["a"]})
    assert b'"price":1.00' in told.raw
    assert [(one["origin"], one["reason"]) for one in told.dropped] == [([None, 2], "value")]


def test_octets_and_maps_of_parquet_are_what_they_are_in_avro(tmp_path: Path) -> None:
    """By their type, never by chance of their bytes: hexadecimal digits, and records whose first of equal names counts."""
    maps = pa.map_(pa.string(), pa.map_(pa.int32(), pa.timestamp("ns", "UTC")))
    table = pa.table(
        {
            "at": pa.array([1, 2, 3], pa.timestamp("s")),
            "raw": pa.array([b"text", b"\xff\xfe", b""], pa.binary()),
            "four": pa.array([b"abcd", None, b"\0\0\0\0"], pa.binary(4)),
            "tags": pa.array([[("k", [(1, 10**18)]), ("k", None)], [], None], maps),
            "many": pa.array([[[("k", b"\1")], None], [], None], pa.list_(pa.map_(pa.string(), pa.binary()))),
            "inner": pa.array([{"m": [("a.b", 1)]}, {"m": None}, None], pa.struct([("m", pa.map_(pa.string(), pa.int8()))])),
        }
    )
    path = tmp_path / "octets.parquet"
    pq.write_table(table, path)
    events = [line["event"] for line in run(str(path), "--timestamp-by", "at", "--over", "raw").lines]
    assert [(event["raw"], event["four"]) for event in events] == [("74657874", "61626364"), ("fffe", None), ("", "00000000")]
    assert [event["tags"] for event in events] == [{"k": {"1": "2001-09-09T01:46:40Z"}}, {}, None]
    assert [event["many"] for event in events] == [[{"k": "01"}, None], [], None]
    assert [event["inner"] for event in events] == [{"m": {"a.b": 1}}, {"m": None}, None]
    assert run(str(path), "--timestamp-by", "at", "--over", "tags.k").code == 0


LATE_BY_S = st.integers(-6, 9)


@st.composite
def log_files(draw: st.DrawFn) -> bytes:
    """Draw a file of several partitions and keys, with lines that cannot be read among the events."""
    lines, arrival_s = [], 1_000
    for number in range(draw(st.integers(1, 30))):
        arrival_s += draw(st.integers(-1, 3))
        kind = draw(st.sampled_from(["event"] * 6 + ["blank", "broken", "untimed", "no arrival"]))
        event = {
            "EventEnqueuedUtcTime": arrival_s,
            "at": arrival_s - draw(LATE_BY_S),
            "PartitionId": draw(st.sampled_from([0, 1, "x"])),
            "k": number % 3,
        }
        if kind == "untimed":
            del event["at"]
        elif kind == "no arrival" and number:
            del event["EventEnqueuedUtcTime"]
        lines.append({"blank": "", "broken": "{"}.get(kind) if kind in ("blank", "broken") else json.dumps(event))
    first = {"EventEnqueuedUtcTime": 1_000, "at": 1_000, "PartitionId": 0, "k": 0}
    return "\n".join([json.dumps(first), *(line or "" for line in lines)]).encode()


def walked(content: bytes, plan: OrderPlan, block_bytes: int) -> tuple[list[bytes], list[bytes], FileWalk]:
    """Walk a file held in memory, reading so many bytes at a time."""
    walk = FileWalk(plan)
    records = open_records("-", FileFormat.NDJSON, io.BytesIO(content), ",", block_bytes)
    outcomes = [*(walk.walk_block(block) for block in records.blocks()), walk.finish()]
    return [line for one in outcomes for line in one.ordered], [line for one in outcomes for line in one.dropped], walk


@given(log_files(), policies(over=True, scale=SECOND_US), st.booleans(), st.integers(1, 400))
def test_where_the_file_is_cut_into_blocks_changes_no_byte(content: bytes, drawn: Policies, over: bool, block_bytes: int) -> None:
    """Level 1: ordered, dropped and unreadable lines with their explanations, in their order."""
    plan = OrderPlan(drawn, ("at",), over=("k",) if over else None, should_explain=True)
    assert walked(content, plan, block_bytes)[:2] == walked(content, plan, 10**6)[:2]


@given(log_files(), policies(over=True, scale=SECOND_US), st.booleans())
def test_each_partition_comes_out_as_the_oracle_tells(content: bytes, drawn: Policies, over: bool) -> None:
    """Level 1: one model for each partition; lines are its offsets; without a time but with an arrival a record moves time."""
    plan = OrderPlan(drawn, ("at",), over=("k",) if over else None)
    ordered, dropped, walk = walked(content, plan, 10**6)
    lines = [json.loads(line) for line in ordered]
    events = [(number, json.loads(line)) for number, line in enumerate(content.split(b"\n"), start=1) if line.startswith(b'{"')]
    for partition in (0, 1, "x"):
        records = [
            Record(
                number, event["EventEnqueuedUtcTime"] * SECOND_US, event["at"] * SECOND_US if "at" in event else None, b"%d" % event["k"]
            )
            for number, event in events
            if event["PartitionId"] == partition and "EventEnqueuedUtcTime" in event
        ]
        story = compute_story(records, drawn, over=over, output_partitions=1, finish=True)
        expected = [(format_tick(event.system_us), [partition, event.offset], sorted(event.policies)) for event in story.ordered]
        assert [
            (one["system_timestamp"], one["origin"], sorted(one["policies"])) for one in lines if one["origin"][0] == partition
        ] == expected
    assert len(ordered) + len(dropped) == walk.summary.records == sum(line != b"" for line in content.split(b"\n"))


def test_events_leave_upon_the_line_that_releases_them_and_at_the_end_by_time_partition_line(tmp_path: Path) -> None:
    """Level 1: partition 1 releases its first event at line 4, before partition 0 does at line 5; then equals by partition, then line."""
    rows = [(0, 10), (1, 5), (1, 5), (1, 20), (0, 30), ("a", 30), (None, 30), (10, 30), (9, 30), (True, 30)]
    content = as_ndjson([{"PartitionId": partition, "at": at} for partition, at in rows])
    told = run(written(tmp_path, content), "--timestamp-by", "at", "--reorder", "5s")
    assert [line["origin"] for line in told.lines] == [
        [1, 2],
        [1, 3],
        [0, 1],
        [1, 4],
        [None, 7],
        [True, 10],
        [0, 5],
        [9, 9],
        [10, 8],
        ["a", 6],
    ]


def test_every_explanation_is_that_of_the_model(tmp_path: Path) -> None:
    """Level 1: event 6 (line 7) met the watermark that event 5 (line 6) had set and was released by event 8 (line 9); event 3 was early."""
    told = run(TOLL, *TOLL_FLAGS, "--explain", dropped=tmp_path / "dropped")
    sixth = next(line["explanation"] for line in told.lines if line["event"]["event_no"] == "6")
    assert (sixth["verdict"], sixth["policies"], sixth["partition"], sixth["offset"]) == ("adjusted", ["out_of_order"], 0, 7)
    assert sixth["watermark"] == {
        "met": "1970-01-01T12:17:00Z",
        "set_by": {"what": "event", "offset": 6, "time": "1970-01-01T12:19:00Z"},
    }
    assert sixth["released_by"]["offset"] == 9
    (early,) = told.dropped
    assert (early["explanation"]["verdict"], early["explanation"]["steps"][0]["limit"]) == ("dropped", "1970-01-01T12:16:00Z")
    assert next(line["explanation"]["released_by"] for line in told.lines if line["event"]["event_no"] == "10")["what"] == "end"


def test_the_text_of_a_json_event_is_kept_as_it_is(tmp_path: Path) -> None:
    """Order of members, spelling of numbers and of characters, spaces inside."""
    text = '{ "z": 1.0e3,  "at":"2001-01-01T00:00:00Z", "ü": "\\u00fc", "big": 123456789012345678901234567890, "a":[ ] }'
    assert f'"event": {text}}}\n'.encode() in run(written(tmp_path, f"  {text}\t\r\n"), "--timestamp-by", "at").raw


def test_the_native_parts_can_be_switched_off_without_changing_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TIDEGATE_KAFKA__NATIVE=off``: the scanner in C is not even asked for."""
    log = written(tmp_path, "".join(json.dumps(row) + "\n" for row in toll_rows()))
    expected = run(log, "--timestamp-by", "at").raw
    monkeypatch.setenv(NATIVE_SWITCH, "off")
    monkeypatch.setattr(json_fields, "library", lambda: pytest.fail("the scanner in C was asked for"))
    assert run(log, "--timestamp-by", "at").raw == expected


def test_lines_that_cannot_be_read_are_told_and_never_stop_the_run(tmp_path: Path) -> None:
    """Each with its line, its reason and what stood there; the events around them come out."""
    good = {"at": "2001-01-01T00:00:00Z", "EventEnqueuedUtcTime": "2001-01-01T00:00:01Z", "PartitionId": 3}
    bad = [
        (b"{not json", "json", [None, 2]),
        (b'{"at": 1,,}', "json", [None, 3]),
        (b'{"at": "\\ud800"}', "json", [None, 4]),
        (b"\xff\xfe", "encoding", [None, 5]),
        (b"[1, 2]", "object", [None, 6]),
        (json.dumps(good | {"at": "soon"}).encode(), "timestamp", [3, 7]),
        (json.dumps({key: good[key] for key in ("PartitionId", "EventEnqueuedUtcTime")}).encode(), "timestamp", [3, 8]),
        (json.dumps(good | {"EventEnqueuedUtcTime": None}).encode(), "arrival", [3, 9]),
        (json.dumps(good | {"PartitionId": [1]}).encode(), "partition", [None, 10]),
        (b"[" * 100_000, "json", [None, 11]),
    ]
    lines = [json.dumps(good).encode(), *(line for line, _, _ in bad), b"", json.dumps(good).encode()]
    told = run(written(tmp_path, b"\n".join(lines)), "--timestamp-by", "at", "--explain", dropped=tmp_path / "dropped")
    assert told.code == 0
    assert [line["origin"] for line in told.lines] == [[3, 1], [3, 13]]
    assert [(line["reason"], line["origin"]) for line in told.dropped] == [(reason, origin) for _, reason, origin in bad]
    assert {line["explanation"]["verdict"] for line in told.dropped} == {"unreadable"}
    assert (told.dropped[0]["event"], told.dropped[3]["event"], told.dropped[4]["event"]) == ("{not json", "��", [1, 2])
    assert "unreadable            10  1 arrival, 1 encoding, 4 json, 1 object, 1 partition, 2 timestamp" in told.errors


def test_an_unreadable_record_with_an_arrival_moves_time(tmp_path: Path) -> None:
    """Level 1: its arrival counts, so the record after it is late by it."""
    rows = [{"at": 100, "EnqueuedTime": 100}, {"at": "never", "EnqueuedTime": 200}, {"at": 150, "EnqueuedTime": 150}]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at")
    assert [(line["policies"], line["system_timestamp"]) for line in told.lines] == [
        ([], "1970-01-01T00:01:40Z"),
        (["late"], "1970-01-01T00:03:15Z"),
    ]


@pytest.mark.parametrize("name", ["EventEnqueuedUtcTime", "eventenqueuedutctime", "EnqueuedTime", "LASTMODIFIED"])
def test_a_well_known_arrival_is_found_ignoring_case(name: str, tmp_path: Path) -> None:
    """As Stream Analytics calls it for Event Hubs, IoT Hub and blobs."""
    told = run(written(tmp_path, as_ndjson([{"at": 100, name: 200, "partitionid": 7}])), "--timestamp-by", "at", "--format", "json")
    assert (told.lines[0]["policies"], told.lines[0]["origin"]) == (["late"], [7, 1])
    assert json.loads(told.errors)["arrival_field"] == name


def test_without_an_arrival_only_reorder_applies(tmp_path: Path) -> None:
    """Level 1: nothing is early or late, whatever the flags say; W follows the largest time; and the summary says so."""
    rows = [{"at": 100}, {"at": 10_000}, {"at": 9_999}, {"at": 9_990}]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at", "--reorder", "5s", "--late", "1s", "--explain")
    assert [(line["system_timestamp"][11:19], line["policies"]) for line in told.lines] == [
        ("00:01:40", []),
        ("02:46:35", ["out_of_order"]),
        ("02:46:39", []),
        ("02:46:40", []),
    ]
    assert told.lines[0]["explanation"]["arrival"] == {"stamped": None, "counted": None, "clamped_by": None}
    assert told.lines[0]["explanation"]["watermark"] == {"met": None, "set_by": None}
    assert "only reorder applies" in told.errors


def test_the_summary_says_which_field_is_what_and_no_arrival_may_be_asked_for(tmp_path: Path) -> None:
    """The first of the well-known names is taken whatever stands first in the record; none switches arrivals off."""
    path = written(tmp_path, as_ndjson([{"at": 100, "lastmodified": 500, "PartitionID": 3, "EnqueuedTime": 101, "none": 900}]))
    told = run(path, "--timestamp-by", "at")
    assert ("arrival: EnqueuedTime, partition: PartitionID" in told.errors, told.lines[0]["policies"]) == (True, [])
    off = run(path, "--timestamp-by", "at", "--arrival", "none")
    assert ("arrival: none, partition: PartitionID" in off.errors, off.lines[0]["policies"]) == (True, [])
    assert run(path, "--timestamp-by", "at", "--arrival", "[none]").lines[0]["policies"] == ["late"]


def test_the_summary_says_how_many_arrivals_went_back(tmp_path: Path) -> None:
    """Level 1: an arrival never goes back; the second counts as 200, so its event is late."""
    rows = [{"at": 200, "EnqueuedTime": 200}, {"at": 100, "EnqueuedTime": 101}]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at")
    assert told.lines[1]["policies"] == ["late", "out_of_order"]
    assert "1 arrival before the largest one so far of the partition, counted as that one" in told.errors


def test_without_an_arrival_each_substream_is_put_in_order_by_itself(tmp_path: Path) -> None:
    """Level 1: OVER needs no floor in a file that ends: a silent substream leaves at the end."""
    rows = [{"at": 100, "k": "a"}, {"at": 500, "k": "b"}, {"at": 99, "k": "a"}, {"at": 50, "k": "a"}, {"at": 600, "k": "b"}]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at", "--reorder", "5s", "--over", "k", "--late", "off")
    assert [(line["origin"][1], line["policies"]) for line in told.lines] == [(2, []), (4, ["out_of_order"]), (3, []), (1, []), (5, [])]


def keys_of(values: Sequence[str]) -> list[bytes]:
    """The substreams of records whose field ``k`` has these values, given as JSON."""
    lines = "".join(f'{{"at": 1, "k": {value}}}\n' for value in values)
    block = next(iter(open_records("-", FileFormat.NDJSON, io.BytesIO(lines.encode()), ",", 1 << 20).blocks()))
    substream = Rows(FieldNames(OrderPlan(Policies(), ("at",), over=("k",))), block).substream
    assert substream is not None
    return list(substream.to_pylist())


def test_a_substream_is_told_by_the_value_of_its_field(tmp_path: Path) -> None:
    """As ingest tells it: equal numbers are one, so are a number and its text; missing and null are one, and another than empty text."""
    values = ('"1"', "1", "1.0", "1.00", "true", "null", '""', "1.5", "-0.0", str(2**63), str(10**400), '{"b": 1, "a": "ü"}')
    assert keys_of(values) == [
        *[b"1"] * 4,
        b"true",
        b"",
        b'""',
        b"1.5",
        b"0",
        b"9.223372036854776e+18",
        b"",
        '{"a":"ü","b":1}'.encode(),
    ]
    rows = '{"at": 100, "k": 9007199254740993}\n{"at": 50, "k": 9007199254740992}\n{"at": 40, "K": 9007199254740993.0}\n'
    lines = run(written(tmp_path, rows), "--timestamp-by", "at", "--over", "k").lines
    assert [(line["event"]["at"], line["policies"]) for line in lines] == [(50, []), (40, ["out_of_order"]), (100, [])]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2001-01-01T00:00:00.5+02:00", "2000-12-31T22:00:00.500Z"),
        (978307200, "2001-01-01T00:00:00Z"),
        (978307200.000001, "2001-01-01T00:00:00.000001Z"),
        (978307200123, "2001-01-01T00:00:00.123Z"),
        ("978307200123456789", "2001-01-01T00:00:00.123456Z"),
        ("12:07", "1970-01-01T12:07:00Z"),
        ("23:59:59.25", "1970-01-01T23:59:59.250Z"),
    ],
)
def test_times_are_read_in_every_form(at: object, expected: str, tmp_path: Path) -> None:
    """ISO-8601, numbers since the epoch by their size, and times of the first day; value by value."""
    content = as_ndjson([{"at": at}, {"at": "9999-01-01"}, {"at": None}])
    assert run(written(tmp_path, content), "--timestamp-by", "at").lines[0]["system_timestamp"] == expected


def test_a_declared_unit_is_the_only_one(tmp_path: Path) -> None:
    """978307200 as milliseconds lies in January 1970, and no text is a time."""
    content = as_ndjson([{"at": 978307200}, {"at": "12:07"}])
    told = run(written(tmp_path, content), "--timestamp-by", "at", "--timestamp-format", "ms")
    assert [line["system_timestamp"] for line in told.lines] == ["1970-01-12T07:45:07.200Z"]


PAGE = ROOT / "docs" / "learn" / "order.md"
EXAMPLES = re.findall(r"```console\n\$ (tidegate order [^\n]+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=lambda text: str(len(text)))
def test_the_examples_of_the_manual_print_what_they_say(command: str, shown: str) -> None:
    """docs/learn/order.md, typed as it stands there."""
    typed = command.replace("tidegate", HOST.program(), 1).replace("python3", sys.executable)
    told = subprocess.run(["bash", "-c", typed], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == shown


def test_every_reason_stands_in_the_manual() -> None:
    """Who finds a reason in a file finds it in docs/learn/order.md."""
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE))))
    assert {fault.value for fault in blocks.Fault} | {"partition", "arrival", "timestamp", "end"} <= told


@given(st.lists(st.integers(1_000, 253_402_300_799_999_999), max_size=8))
def test_columns_of_times_are_written_like_single_ones(times: list[int]) -> None:
    """The fast way and the plain way agree."""
    assert [text.decode() for text in format_ticks(pa.array(times, pa.int64()).to_numpy())] == [format_tick(time) for time in times]


def test_a_csv_counts_physical_lines(tmp_path: Path) -> None:
    """The header is line 1; a record with line ends in quotes has the line it begins in; blank lines count."""
    content = '\ufeffat,note\r\n100,"a\r\nb"\r\n\r\n50,"say ""hi"", ok"\r\n'
    told = run(written(tmp_path, content, "log.csv"), "--timestamp-by", "at", "--reorder", "1m")
    assert [(line["origin"], line["event"]["note"]) for line in told.lines] == [([0, 5], 'say "hi", ok'), ([0, 2], "a\r\nb")]


def test_rows_of_a_csv_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """Too many columns, too few, no UTF-8, a time that is none; the rest comes out."""
    content = b"at;x\n100;a\n100\n100;a;b\n100;\xff\n;a\n101;z\n"
    told = run(written(tmp_path, content, "log.csv"), "--timestamp-by", "at", "--delimiter", ";", dropped=tmp_path / "dropped")
    assert told.column("x") == ["a", "z"]
    assert [(line["reason"], line["origin"][1]) for line in told.dropped] == [
        ("columns", 3),
        ("columns", 4),
        ("encoding", 5),
        ("timestamp", 6),
    ]
    assert told.dropped[1]["event"] == ["100", "a", "b"]


def test_a_record_beyond_the_limit_is_told_and_what_follows_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line longer than a record may be; and lines that are that long together, in a quote, of which only the first is lost."""
    monkeypatch.setattr(blocks, "RECORD_BYTES_MAX", 1_000)
    rows = "".join(f"{number},{'a' * 30}\n" for number in range(100, 200))
    told = run(
        written(tmp_path, f'at,x\n98,{"b" * 1_000}\n99,"open\n{rows}', "log.csv"), "--timestamp-by", "at", dropped=tmp_path / "dropped"
    )
    assert [(line["reason"], line["origin"][1]) for line in told.dropped] == [("too_long", 2), ("quote", 3)]
    assert told.column("at") == [str(number) for number in range(100, 200)]


@pytest.mark.parametrize("lines", [5, 98, 99, 100, 101, 1_000])
@pytest.mark.parametrize("ending", ["", '"', '"\n200,z', '"x\n200,z'])
def test_an_open_quote_costs_one_line(lines: int, ending: str, tmp_path: Path) -> None:
    """Level 1: closed after too many lines, with too many columns, or never: the lines behind it are records as ever."""
    rows = "".join(f"{number},a,b\n" for number in range(100, 100 + lines))
    path = written(tmp_path, f'at,x,y\n98,b,c\n99,"open\n{rows}{ending}', "log.csv")
    told = run(path, "--timestamp-by", "at", "--reorder", "1d", dropped=tmp_path / "dropped")
    assert told.column("at")[:1] + told.column("at")[1:][:lines] == ["98", *map(str, range(100, 100 + lines))]
    assert (told.dropped[0]["reason"], told.dropped[0]["origin"], told.dropped[0]["event"]) == ("quote", [None, 3], ["99", "open\n"])
    assert {line["reason"] for line in told.dropped[1:]} <= {"quote", "columns"}


def test_a_text_may_have_line_ends_in_a_quote(tmp_path: Path) -> None:
    """Up to a hundred lines of one record; a line more, and each of them is one of its own."""
    for lines, good in ((100, 1), (101, 0)):
        text = "\n".join(["x"] * lines)
        told = run(written(tmp_path, f'at,x\n98,b\n99,"{text}"\n', "log.csv"), "--timestamp-by", "at", dropped=tmp_path / "dropped")
        assert (len(told.lines), len(told.dropped)) == (1 + good, 0 if good else 101)


@pytest.mark.parametrize(("ending", "good"), [('"', 0), ('"x', 0), ('"x"', 1), ("x", 1), ('"a\n"', 1), ('"x"\n\n', 1), ('x"', 1)])
def test_a_quote_is_open_only_where_it_is(ending: str, good: int, tmp_path: Path) -> None:
    """However the file ends."""
    told = run(written(tmp_path, f"at,x\n98,b\n99,{ending}", "log.csv"), "--timestamp-by", "at")
    assert len(told.lines) == 1 + good


@pytest.mark.parametrize("depth", [100, 300, 450])
def test_a_key_may_be_nested_deep(depth: int, tmp_path: Path) -> None:
    """Beyond 200 brackets it is taken as it stands; equal ones are one substream, others are others."""
    deep = '{"b":' * depth + '{"x":[null,1,"é"],"a":1.5,"c":1e400}' + "}" * depth
    told = run(written(tmp_path, f'{{"at": 100, "k": {deep}}}\n{{"at": 90, "k": {deep}}}\n{{"at": 80, "k": 1}}\n'), *DEEP_FLAGS)
    assert [(line["origin"][1], line["policies"]) for line in told.lines] == [(3, []), (1, []), (2, ["out_of_order"])]
    inner = '{"x":[null,1,"é"],"a":1.5}' if depth > 200 else '{"a":1.5,"x":[null,1,"é"]}'
    assert keys_of([deep.replace(',"c":1e400', "")])[0].decode() == '{"b":' * depth + inner + "}" * depth


def test_a_huge_record_is_read_and_one_beyond_the_limit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks long, and then longer than a record may be; what follows keeps its line."""
    monkeypatch.setattr(blocks, "RECORD_BYTES_MAX", 12_000_000)
    events = [json.dumps({"at": 100 + place, "pad": "x" * size}) for place, size in enumerate([1, 9_000_000, 13_000_000, 1])]
    told = run(written(tmp_path, "\n".join(events)), "--timestamp-by", "at", dropped=tmp_path / "dropped")
    assert [(line["origin"][1], len(line["event"]["pad"])) for line in told.lines] == [(1, 1), (2, 9_000_000), (4, 1)]
    assert [(line["reason"], line["origin"][1], len(line["event"])) for line in told.dropped] == [("too_long", 3, 1_000)]


def test_paths_reach_into_records_and_odd_names_stand_in_brackets(tmp_path: Path) -> None:
    """``a.b``, ``[a.b]`` and names of any script."""
    rows = [{"meta": {"時刻": 100, "x.y": "k"}}, {"meta": 1}, {"meta": {"時刻": 90, "x.y": "m"}}]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "meta.時刻", "--over", "meta.[x.y]")
    assert [line["origin"][1] for line in told.lines] == [3, 1]
    for text, path in {"a": ("a",), "a.b": ("a", "b"), "[a b].c": ("a b", "c"), "a[b.c]": ("a", "b.c")}.items():
        assert parse_path(text, "--over") == path
        assert parse_path(format_path(path), "--over") == path


def test_intervals_are_ordered_by_their_start(tmp_path: Path) -> None:
    """Level 1: one without a valid end is unreadable."""
    rows = [{"at": 100, "until": 110}, {"at": 90, "until": 95}, {"at": 120, "until": "x"}]
    told = run(
        written(tmp_path, as_ndjson(rows)),
        "--timestamp-by",
        "at",
        "--reorder",
        "10s",
        "--shape",
        "interval",
        "--end",
        "until",
        dropped=tmp_path / "d",
    )
    assert (told.column("at"), told.dropped[0]["reason"]) == ([90, 100], "end")
    assert [line["end"][14:] for line in told.lines] == ["01:35Z", "01:50Z"]


@pytest.mark.parametrize("block_bytes", [1, 10**6])
def test_the_end_of_an_interval_comes_out_after_its_start(block_bytes: int) -> None:
    """Level 1: moved past its end an interval ends a tick after its start, and says so; whenever it leaves, and if others are dropped."""
    rows = [{"at": 100, "until": 500, "EnqueuedTime": 100}, {"at": 900, "until": 901, "EnqueuedTime": 101}]
    rows += [{"at": 50, "until": 60, "EnqueuedTime": 102}, {"at": 110, "until": 111, "EnqueuedTime": 110}]
    plan = OrderPlan(Policies(reorder_us=5 * SECOND_US), ("at",), shape=Shape.INTERVAL, end=("until",))
    ordered, dropped, _ = walked(as_ndjson(rows).encode(), plan, block_bytes)
    told = [json.loads(line) for line in ordered]
    assert [(line["origin"][1], line["system_timestamp"][14:], line["end"][14:], line["policies"]) for line in told] == [
        (3, "01:37Z", "01:37.000001Z", ["late", "lifted_end"]),
        (1, "01:40Z", "08:20Z", []),
        (4, "01:50Z", "01:51Z", []),
    ]
    assert b'"early"' in dropped[0]


def test_edges_are_ordered_each_by_its_own_time(tmp_path: Path) -> None:
    """Level 1: an edge without an end is a start; an end that comes out at its start is lifted by one tick."""
    rows = [{"at": 100}, {"at": 99, "until": 130}, {"at": 120, "until": None}, {"at": 120, "until": 110}]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at", "--reorder", "1m", "--shape", "edge", "--end", "until")
    assert [(line["origin"][1], line["system_timestamp"][14:]) for line in told.lines] == [
        (1, "01:40Z"),
        (3, "02:00Z"),
        (4, "02:00.000001Z"),
        (2, "02:10Z"),
    ]
    assert [line["policies"] for line in told.lines] == [[], [], ["lifted_end"], []]


@pytest.mark.parametrize(("flags", "lifted"), [([], True), (["--key", "k"], False), (["--over", "k", "--late", "5s"], False)])
def test_an_end_edge_finds_the_start_edge_of_its_own_key(flags: list[str], lifted: bool, tmp_path: Path) -> None:
    """Level 1: the start of the same time that was lifted to 00:01:40 is another's by its key, or by its substream."""
    rows = [{"at": 160, "k": "a"}, {"at": 80, "k": "a"}, {"at": 80, "k": "b", "until": 99}]
    path = written(tmp_path, as_ndjson(rows))
    told = run(path, "--timestamp-by", "at", "--reorder", "1m", "--shape", "edge", "--end", "until", *flags)
    times = {line["origin"][1]: line["system_timestamp"][14:] for line in told.lines}
    assert times[3] == ("01:40.000001Z" if lifted else "01:39Z" if "--over" in flags else "01:40Z")


def test_partitions_are_numbers_texts_and_the_like(tmp_path: Path) -> None:
    """1 and 1.0 are one, "1" is another; in a CSV, which has no numbers, a whole number is one."""
    rows = [{"at": 100, "PartitionId": partition} for partition in (1, 1.0, "1", 2.5, False)]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at", "--format", "json")
    assert (sorted(map(str, (line["origin"][0] for line in told.lines))), json.loads(told.errors)["partitions"]) == (
        ["1", "1", "1", "2.5", "False"],
        4,
    )
    content = "at,PartitionId\n100,10\n100,9\n100,x\n100,007\n"
    told = run(written(tmp_path, content, "log.csv"), "--timestamp-by", "at")
    assert [line["origin"][0] for line in told.lines] == [9, 10, "007", "x"]


def test_a_negative_reorder_of_one_tick_makes_equals_out_of_order(tmp_path: Path) -> None:
    """Level 1: the event is committed by itself; its equal is lifted by one tick."""
    told = run(written(tmp_path, as_ndjson([{"at": 100}, {"at": 100}])), "--timestamp-by", "at", "--reorder", "-1us")
    assert [line["system_timestamp"][14:] for line in told.lines] == ["01:40Z", "01:40.000001Z"]


def test_late_and_out_of_order_events_may_be_dropped(tmp_path: Path) -> None:
    """Level 1: both actions, each counted under its own reason."""
    rows = [{"at": 100, "EnqueuedTime": 100}, {"at": 90, "EnqueuedTime": 101}, {"at": 99, "EnqueuedTime": 101}]
    drop = ["--late-action", "drop", "--out-of-order-action", "drop"]
    told = run(written(tmp_path, as_ndjson(rows)), "--timestamp-by", "at", *drop, "--format", "json", dropped=tmp_path / "dropped")
    assert [(line["reason"], line["origin"][1], line["system_timestamp"]) for line in told.dropped] == [
        ("late", 2, None),
        ("out_of_order", 3, None),
    ]
    assert json.loads(told.errors)["dropped"] == {"early": 0, "late": 1, "out_of_order": 1}


def test_standard_input_is_json_lines_unless_another_format_is_named() -> None:
    """``-`` reads a pipe."""
    assert run("-", "--timestamp-by", "at", given=b'{"at": 100}\n{"at": 90}').column("at") == [100, 90]
    assert run("-", "--timestamp-by", "at", "--input-format", "csv", given=b"at\n100\n").column("at") == ["100"]


def test_an_empty_file_gives_nothing_and_is_no_error(tmp_path: Path) -> None:
    """There is nothing to be wrong."""
    told = run(written(tmp_path, ""), "--timestamp-by", "at", "--format", "json")
    assert (told.code, told.raw, json.loads(told.errors)["records"]) == (0, b"", 0)


def test_output_goes_to_a_file_if_one_is_named(tmp_path: Path) -> None:
    """Standard output then stays empty."""
    told = run(TOLL, *TOLL_FLAGS, "--output", str(tmp_path / "out"))
    assert (told.code, told.raw, len((tmp_path / "out").read_bytes().splitlines())) == (0, b"", 11)


@pytest.mark.parametrize(("name", "content"), [("json", b'{"at": 100}'), ("jsonl", b'{"at": 100}'), ("tsv", b"at\tx\n100\t1\n")])
def test_a_format_may_be_named_as_an_ending_is(name: str, content: bytes) -> None:
    """json and jsonl are lines of JSON, tsv is a CSV with tabs."""
    assert str(run("-", "--timestamp-by", "at", "--input-format", name, given=content).column("at")[0]) == "100"


@pytest.mark.parametrize(
    ("name", "flags", "piped"),
    [
        ("log.csv.gz", [], "| tidegate order - --input-format csv --timestamp-by"),
        ("log.gz", ["--input-format", "tsv"], "| tidegate order - --input-format tsv --timestamp-by"),
        ("log.ndjson", [], "| tidegate order - --timestamp-by"),
        ("log.parquet.gz", [], "> log.parquet"),
    ],
)
def test_a_compressed_file_is_told_with_the_way_to_read_it(name: str, flags: list[str], piped: str, tmp_path: Path) -> None:
    """Whatever its name, by its first octets; through a pipe too."""
    path = written(tmp_path, gzip.compress(b"at\n100\n"), name)
    told = run(path, "--timestamp-by", "at", *flags)
    assert (told.code, "TG-ORDER-FORMAT" in told.errors) == (2, True)
    assert f"zcat {path} {piped}" in told.errors
    assert b"gzip" in shell(f"cat {path} | ORDER - --timestamp-by at", tmp_path).stderr


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """That is told before its missing ending is."""
    for path in (tmp_path, tmp_path / "log.txt"):
        assert "TG-ORDER-FILE: " in run(str(path), "--timestamp-by", "at").errors


WRONG: list[tuple[str, str, list[str], str | bytes, int, str]] = [
    ("TG-ORDER-FORMAT", "log.txt", [], "", 2, "--input-format"),
    ("TG-ORDER-FORMAT", "log.parquet", [], "no parquet", 2, "log.parquet"),
    ("TG-ORDER-FILE", "missing/log.csv", [], "", 2, "log.csv"),
    ("TG-ORDER-HEADER", "log.csv", [], "", 2, "log.csv:1"),
    ("TG-ORDER-HEADER", "log.csv", [], "at,x,at\n", 2, "two columns have the name at"),
    ("TG-ORDER-FIELD", "log.csv", [], "att,x\n100,1\n", 2, "did you mean att? there are: att, x"),
    ("TG-ORDER-FIELD", "log.csv", ["--over", "reading.at"], "reading.at,at,a b\n1,100,1\n", 2, "did you mean [reading.at]? there are: "),
    ("TG-ORDER-FIELD", "log.csv", ["--over", "x"], 'at,"a, b",a.b\n100,1,1\n', 2, "there are: at, [a, b], [a.b]"),
    ("TG-ORDER-FIELD", "log.csv", ["--over", "att"], "AT\n100\n", 2, "did you mean AT?"),
    ("TG-ORDER-FIELD", "log.ndjson", ["--over", "arr[0].t"], '{"at": 100, "arr": [{"t": 1}]}\n', 2, "an array cannot be indexed"),
    ("TG-ORDER-FIELD", "log.ndjson", ["--over", "a.tt"], '{"at": 100, "a": {"t": 1}}\n', 2, "a is there, but never with tt in it"),
    ("TG-ORDER-HEADER", "log.csv", [], 'at,"x\n100,1\n', 2, "a quote in the header is never closed"),
    ("TG-ORDER-HEADER", "log.csv", [], b"at,gr\xf6\xdfe\n100,1\n", 2, "the header is not UTF-8"),
    ("TG-DURATION", "log.csv", ["--reorder", "999999999999d"], "at\n100\n", 2, "--reorder"),
    ("TG-DURATION", "log.csv", ["--early", "999999999999d"], "at\n100\n", 2, "--early"),
    ("TG-ORDER-FIELD", "log.ndjson", [], '{"att": 100}\n', 2, "log.ndjson:1"),
    ("TG-ORDER-FIELD", "log.ndjson", ["--over", "k"], '{"at": 100}\n', 2, "no record has the field k"),
    ("TG-ORDER-UNREADABLE", "log.ndjson", [], '\n{"at": "soon"}\n', 2, "log.ndjson:2"),
    ("TG-ORDER-UNREADABLE", "log.json", [], '{"at"\n100}\n', 2, "each line holds one JSON object"),
    ("TG-SETTING-VALUE", "log.csv", ["--over", "a..b"], "at\n100\n", 2, "--over"),
    ("TG-SETTING-VALUE", "log.csv", ["--reorder", "off"], "at\n100\n", 2, "--reorder"),
    ("TG-SETTING-VALUE", "log.csv", ["--delimiter", "::"], "at\n100\n", 2, "--delimiter"),
    ("TG-SETTING-CONFLICT", "log.csv", ["--shape", "interval"], "at\n100\n", 2, "--shape interval --end until"),
    ("TG-SETTING-CONFLICT", "log.csv", ["--key", "k"], "at,k\n100,1\n", 2, "--shape edge --end until --key k"),
    ("TG-SETTING-CONFLICT", "log.csv", ["--key", "k", "--shape", "interval", "--end", "at"], "at,k\n100,1\n", 2, "--key"),
    ("TG-SETTING", "log.csv", ["--late", "21d"], "at\n100\n", 2, "between 0s and 20d"),
    ("TG-SETTING", "log.ndjson", ["--late", "off", "--over", "k"], '{"at": 1, "k": 1, "EnqueuedTime": 1}\n', 2, "OVER"),
    ("TG-DURATION", "log.csv", ["--early", "5 minutes"], "at\n100\n", 2, "--early 5s"),
]


@pytest.mark.parametrize(("code", "name", "flags", "content", "exit_code", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_place_and_a_way_out(
    code: str, name: str, flags: list[str], content: str, exit_code: int, said: str, tmp_path: Path
) -> None:
    """A code that docs/reference/errors.md explains, where, how to mend it; exit code 2; no traceback."""
    path = str(tmp_path / name) if "/" in name else written(tmp_path, content, name)
    told = run(path, "--timestamp-by", "at", *flags)
    assert told.code == exit_code
    assert f"{code}: " in told.errors
    assert said in told.errors
    assert "fix: " in told.errors


def test_a_path_that_a_parquet_file_does_not_have_is_told_before_it_is_read(tmp_path: Path) -> None:
    """Members of structs stand in the schema: nothing is written."""
    path = tmp_path / "log.parquet"
    pq.write_table(pa.Table.from_pylist([{"at": 100, "in": {"k": 1, "l": [1]}}]), path)
    for wrong in ("in.kk", "in.k.x", "in.l.0", "inn"):
        told = run(str(path), "--timestamp-by", "at", "--over", wrong)
        assert (told.code, told.raw, "TG-ORDER-FIELD" in told.errors) == (2, b"", True)
    assert run(str(path), "--timestamp-by", "at", "--over", "in.k").code == 0


def test_midnight_of_the_first_day_is_below_the_least_time_and_the_summary_says_so(tmp_path: Path) -> None:
    """Kafka clients read 0 ms as now: a time of day of 00:00 has no place."""
    told = run(written(tmp_path, "at\n00:00\n00:01\n", "log.csv"), "--timestamp-by", "at")
    assert told.column("at") == ["00:01"]
    assert "timestamp: first at line 2; " in told.errors
    assert "00:00 alone is none" in told.errors


def test_two_files_must_not_be_the_same(tmp_path: Path) -> None:
    """Neither may overwrite the other."""
    path = written(tmp_path, '{"at": 100}\n')
    for flags in (["--output", path], ["--output", str(tmp_path / "o"), "--dropped", str(tmp_path / "o")]):
        assert "TG-SETTING-CONFLICT" in run(path, "--timestamp-by", "at", *flags).errors
    assert Path(path).read_text() == '{"at": 100}\n'


def shell(command: str, folder: Path, program: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in *folder*, with ORDER for the command and its usual flag."""
    typed = command.replace("ORDER", f"{program or HOST.program()} order")
    where = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", typed], cwd=folder, capture_output=True, timeout=60, env=where)


@pytest.mark.parametrize(
    "command",
    [
        "ORDER - --timestamp-by at --output log.ndjson < log.ndjson",
        "ORDER - --timestamp-by at --dropped log.ndjson < log.ndjson",
        "ln log.ndjson hard; ORDER log.ndjson --timestamp-by at --output hard",
        "ln -s log.ndjson soft; ORDER log.ndjson --timestamp-by at --output soft",
        "ORDER log.ndjson --timestamp-by at >> log.ndjson",
        "ORDER log.ndjson --timestamp-by at --dropped f > f",
        "ORDER log.ndjson --timestamp-by at --dropped f 2> f; cat f >&2",
        "touch g; ln g h; ORDER log.ndjson --timestamp-by at --dropped g --output h",
    ],
)
def test_no_file_is_written_over_another_whatever_it_is_called(command: str, tmp_path: Path) -> None:
    """Redirections, links and flags may all name one file: that is told, and the input stays."""
    path = written(tmp_path, '{"at": 100}\n')
    assert b"TG-SETTING-CONFLICT" in shell(command, tmp_path).stderr
    assert Path(path).read_text() == '{"at": 100}\n'


@pytest.mark.parametrize("flags", ["--dropped /dev/stdout", "--output /dev/stdout --dropped /dev/stdout", "--dropped /dev/fd/1"])
def test_dropped_records_may_go_where_the_events_go(flags: str, tmp_path: Path) -> None:
    """A file behind standard output takes both: neither is written over the other."""
    written(tmp_path, '{"at": 100}\nbad\n{"at": 101}\n')
    shell(f"ORDER log.ndjson --timestamp-by at {flags} > f", tmp_path)
    told = [json.loads(line) for line in (tmp_path / "f").read_bytes().splitlines()]
    assert sorted((line["origin"][1], line.get("reason")) for line in told) == [(1, None), (2, "json"), (3, None)]


@pytest.mark.parametrize(("stream", "code"), [(">&-", b"TG-ORDER-OUTPUT"), ("<&-", b"TG-ORDER-FILE")])
def test_a_stream_that_is_closed_is_told(stream: str, code: bytes, tmp_path: Path) -> None:
    """As a service may start it: no traceback."""
    written(tmp_path, '{"at": 100}\n')
    told = shell(f"ORDER {'log.ndjson' if '>' in stream else '-'} --timestamp-by at {stream}", tmp_path, f"{sys.executable} -m tidegate")
    assert (code in told.stderr, b"Traceback" in told.stderr) == (True, False)


def test_a_run_that_fails_leaves_what_stood_there(tmp_path: Path) -> None:
    """Files are put in their place at the end: one that is there is whole, and keeps its permissions."""
    output = tmp_path / "out"
    output.write_text("before")
    output.chmod(0o640)
    path = written(tmp_path, '{"at": 100}\n')
    flags = ["--timestamp-by", "at", "--output", str(output)]
    assert run(path, *flags, "--over", "k", dropped=tmp_path / "dropped").code == 2
    assert (output.read_text(), sorted(one.name for one in tmp_path.iterdir())) == ("before", ["log.ndjson", "out"])
    assert run(path, *flags, dropped=tmp_path / "dropped").code == 0
    assert (len(output.read_bytes().splitlines()), output.stat().st_mode & 0o777) == (1, 0o640)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["dropped", "log.ndjson", "out"]


def test_an_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A folder is no file, and a full device takes nothing: exit code 4."""
    for path in (str(tmp_path), "/dev/full"):
        told = run(TOLL, *TOLL_FLAGS, "--output", path)
        assert (told.code, "TG-ORDER-OUTPUT" in told.errors) == (4, True)


def test_the_program_loads_neither_spark_nor_kafka_nor_redis() -> None:
    """A model on a file needs no service and no Java."""
    program = (
        "import sys; sys.argv = ['tidegate', 'order', *sys.argv[1:]]\n"
        "from tidegate.tools.commands.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({'pyspark', 'confluent_kafka', 'redis', 'duckdb', 'sqlglot', 'py4j'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program, TOLL, *TOLL_FLAGS], capture_output=True, text=True, check=True, timeout=60)
    assert (shown.stdout.splitlines()[-1], len(shown.stdout.splitlines())) == ("", 12)


def test_a_reader_that_has_seen_enough_ends_the_run_quietly(tmp_path: Path) -> None:
    """``| head`` closes the pipe: no traceback, no error."""
    path = written(tmp_path, as_ndjson([{"at": 100 + place, "pad": "x" * 1_000} for place in range(20_000)]))
    command = [sys.executable, "-m", "tidegate", "order", path, "--timestamp-by", "at"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["event"]["at"] == 100
        process.stdout.close()
        assert (process.wait(timeout=60), process.stderr.read()) == (0, b"")


def test_a_pipe_is_followed_as_it_fills() -> None:
    """Events leave as soon as what has come releases them, not when a block is full."""
    command = [sys.executable, "-m", "tidegate", "order", "-", "--timestamp-by", "at"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"at": 100}\n{"at": 200}\n')
        process.stdin.flush()
        first = json.loads(process.stdout.readline())
        rest, _ = process.communicate(b"", timeout=60)
    assert (first["event"]["at"], parse_tick(first["system_timestamp"])) == (100, 100 * SECOND_US)
    assert json.loads(rest)["event"]["at"] == 200


@pytest.mark.parametrize(
    ("rows", "flags", "told"),
    [
        ([(1, 1), (90_001, 2), (6, 3)], ["--early", "off"], "line 2 of partition 0 moves time by 1d59m59s: an event's time is far ahead"),
        ([(1, 1), (90_001, 2), (6, 3)], [], ""),
        ([(1, 90_001), (2, 2), (3, 3)], [], "line 2 of partition 0 moves time by 1d59m59s, and 1 more: a record is stamped far behind"),
        ([(1, 30_000_000_000), (2, 30_000_000_001)], [], "and 1 more: a record is stamped far ahead of the clock"),
        ([(1, 1_000_000_000), (2, 1_000_000_001)], ["--late", "off"], ""),
        ([(90_000, None), (5, None), (6, None)], [], "line 2 of partition 0 moves time by 1d59m55s, and 1 more: it lies far behind"),
        ([(90_000, None), (90_005, None), (90_001, None)], [], ""),
    ],
    ids=["early is off", "early drops it", "arrivals go back", "an arrival to come", "all is long ago", "no arrivals", "no arrivals, near"],
)
def test_a_time_jump_is_told_with_its_line(rows: list[tuple[int, int | None]], flags: list[str], told: str, tmp_path: Path) -> None:
    """As a job logs it: one wrong time moves the times of all later events, which counts alone do not show."""
    records = [{"at": at, **({} if arrival is None else {"EnqueuedTime": arrival})} for at, arrival in rows]
    errors = run(written(tmp_path, as_ndjson(records)), "--timestamp-by", "at", "--timestamp-format", "s", *flags).errors
    assert ("time jump" in errors) is bool(told)
    assert told in errors
