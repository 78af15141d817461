"""Files by spans: whole or not there, the same bytes however often and in whatever order rows were handed over."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_sink import MemorySink, span_start
from support.repository import ROOT

from ordering.ticks import MINUTE_US, SECOND_US, parse_tick
from query.testing.sink_law import SPAN_US
from sinks import files
from sinks.base import SheetRows, SinkError, sort_rows
from sinks.files import FileSink
from tidegate.records.result_columns import make_table, scan_values
from tidegate.testing import SinkUnderTest, law_of

START_US = parse_tick("2001-01-01T00:00:00Z")
TIME = pa.timestamp("us", tz="UTC")
Columns = tuple[tuple[str, str], ...]
COLUMNS: Columns = (("n", "bigint"), ("avg", "float"), ("at", "datetime"), ("name", "nvarchar(max)"), ("odd", "any"))
ROWS = [
    (START_US + 2, b"b", b'{"n": 3, "avg": 1.5, "at": "2001-01-01T00:00:00.000002Z", "name": "x"}'),
    (START_US + 1, b"b", b'{"n": 2, "avg": 2, "at": null, "name": "\\u00e9"}'),
    (START_US + 1, b"a", b'{"n": 1}'),
    (START_US + 1, b"b", b'{"n": 9007199254740993}'),
]


def contents(folder: Path) -> dict[str, bytes]:
    """Return what a reader sees in *folder*."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def test_ndjson_lines_stand_by_time_key_and_row(tmp_path: Path) -> None:
    """One object a line, in the one order, under the name of span and partition."""
    FileSink(tmp_path, "ndjson", MINUTE_US).publish(START_US, 3, ROWS)
    (name,) = contents(tmp_path)
    assert name == "2001-01-01T00-00-00Z.p00003.ndjson"
    assert [json.loads(line)["n"] for line in contents(tmp_path)[name].splitlines()] == [1, 2, 9007199254740993, 3]


def test_parquet_has_the_columns_of_the_query(tmp_path: Path) -> None:
    """Names and types are the query's, also where all values of a file are NULL."""
    sink = FileSink(tmp_path, "parquet", MINUTE_US, COLUMNS)
    sink.publish(START_US, 0, ROWS)
    table = pa.parquet.read_table(tmp_path / sink.name(START_US, 0))
    assert table.schema.equals(
        pa.schema([("n", pa.int64()), ("avg", pa.float64()), ("at", TIME), ("name", pa.string()), ("odd", pa.string())])
    )
    assert table["n"].to_pylist() == [1, 2, 9007199254740993, 3]
    assert table["avg"].to_pylist() == [None, 2.0, None, 1.5]
    assert table["at"].cast(pa.int64()).to_pylist() == [None, None, None, START_US + 2]
    assert table["name"].to_pylist() == [None, "é", None, "x"]
    assert table["odd"].to_pylist() == [None] * 4


@pytest.mark.parametrize(
    ("file_format", "columns"), [("parquet_json", COLUMNS), ("parquet", (("n", "bigint"), ("*", "record"))), ("parquet", ())]
)
def test_parquet_holds_json_where_that_is_wanted_or_columns_are_unknown(tmp_path: Path, file_format: str, columns: Columns) -> None:
    """With ``SELECT *`` from an input the members are those of each event, so no column can have them."""
    sink = FileSink(tmp_path, file_format, MINUTE_US, columns)
    sink.publish(START_US, 0, ROWS)
    table = pa.parquet.read_table(tmp_path / sink.name(START_US, 0))
    assert table.column_names == ["system_timestamp", "key", "value"]
    assert table["key"].to_pylist() == [b"a", b"b", b"b", b"b"]
    assert table["system_timestamp"].cast(pa.int64()).to_pylist() == [START_US + 1] * 3 + [START_US + 2]


VALUES: dict[str, st.SearchStrategy[str]] = {
    "bit": st.sampled_from(["true", "false"]),
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "float": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "datetime": st.datetimes().map(lambda at: json.dumps(at.isoformat(timespec="microseconds") + "Z")),
    "nvarchar(max)": st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: json.dumps(text, ensure_ascii=False)),
    "record": st.sampled_from(['{"a":1.50,"a":[{}]}', "{}", '{"n":' + "9" * 5_000 + "}"]),
    "array": st.sampled_from(["[]", '[1,"]",null]']),
    "any": st.sampled_from(["7", '"7"', "7.0", "true", '{"x":"}"}', "[0]", "1e+16"]),
}
"""JSON texts of each type, as queries write them."""


@given(st.data())
def test_a_value_in_parquet_is_the_one_in_json(data: st.DataObject) -> None:
    """Whatever the type: NULL is null, records, arrays and values without a fixed type are their JSON, everything else the value itself."""
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5))
    names = [f'c{number} "é' for number in range(len(kinds))]
    rows = data.draw(st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in kinds)), max_size=8))
    objects = ["{" + ",".join(f"{json.dumps(name)}:{text or 'null'}" for name, text in zip(names, row, strict=True)) + "}" for row in rows]
    table = make_table(pa.chunked_array([[text.encode() for text in objects]], pa.binary()), list(zip(names, kinds, strict=True)))
    for name, kind, texts in zip(names, kinds, zip(*rows, strict=True), strict=False):
        told = [None if text is None else text if kind in ("record", "array", "any") else json.loads(text) for text in texts]
        found = table[name].to_pylist()
        if kind == "datetime":
            found = [at and at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0") for at in found]
        assert found == told


def test_files_of_each_day_have_a_folder_of_their_own(tmp_path: Path) -> None:
    """As Hive, Spark and DuckDB read them: the day, of UTC, is a column."""
    sink = FileSink(tmp_path, "parquet", MINUTE_US, COLUMNS[:1], by_date=True)
    for start_us in (START_US - MINUTE_US, START_US):
        sink.publish(start_us, 0, [(start_us, b"", b'{"n":1}')])
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert names == ["date=2000-12-31/2000-12-31T23-59-00Z.p00000.parquet", "date=2001-01-01/2001-01-01T00-00-00Z.p00000.parquet"]
    read = duckdb.sql(f"SELECT date::VARCHAR, n FROM read_parquet('{tmp_path}/*/*.parquet', hive_partitioning = true) ORDER BY 1")
    assert read.fetchall() == [("2000-12-31", 1), ("2001-01-01", 1)]


@pytest.mark.parametrize(("file_format", "by_date"), [("ndjson", False), ("parquet", True)])
def test_a_publication_that_is_broken_off_and_repeated_shows_whole_files(file_format: str, by_date: bool) -> None:
    """Law of the sink: killed at any line, and published again by others, it shows the same files, none of them in part."""
    law_of(SinkUnderTest(lambda folder: FileSink(folder, file_format, SPAN_US, (("n", "bigint"),), by_date=by_date)))


@pytest.mark.parametrize("file_format", ["ndjson", "parquet", "parquet_json"])
@settings(max_examples=25)
@given(data=st.data())
def test_a_sheet_published_again_is_the_same_bytes(file_format: str, data: st.DataObject) -> None:
    """Law of the sink: repeated, interleaved and re-cut handing over of the same rows shows the same files."""
    rows = data.draw(st.lists(st.tuples(st.integers(0, 5 * SECOND_US), st.sampled_from([b"", b"a", b"b"]), st.integers(0, 2)), max_size=20))
    sheets: dict[int, list[tuple[int, bytes, bytes]]] = {}
    for second, key, number in rows:
        sheets.setdefault(span_start(START_US + second, SECOND_US), []).append((START_US + second, key, b'{"n": %d}' % number))
    calls = data.draw(st.permutations(list(sheets) * 2))
    with tempfile.TemporaryDirectory() as once, tempfile.TemporaryDirectory() as often:
        for start in sheets:
            FileSink(once, file_format, SECOND_US, COLUMNS).publish(start, 0, sheets[start])
        for start in calls:
            FileSink(often, file_format, SECOND_US, COLUMNS).publish(start, 0, sheets[start])
        assert contents(Path(once)) == contents(Path(often))


@pytest.mark.parametrize("file_format", ["ndjson", "parquet", "parquet_json"])
@pytest.mark.parametrize("bytes_max", [2**31 - 1, 50])
def test_the_bytes_of_a_file_do_not_depend_on_the_pieces_in_which_its_rows_lie(
    file_format: str, bytes_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level 3: pieces follow from batches; also if a column has more bytes than one Arrow array may have."""
    monkeypatch.setattr(files, "BYTES_MAX", bytes_max)
    sink = FileSink(tmp_path, file_format, MINUTE_US, COLUMNS[:3])
    whole = SheetRows.of([(START_US + number, b"k", b'{"n":%d,"avg":0.5}' % number) for number in range(30)]).table
    contents = {
        sink.content(START_US, 0, SheetRows(pa.concat_tables([whole.slice(0, cut), whole.slice(cut)]))) for cut in (0, 1, 13, 29, 30)
    }
    assert len(contents) == 1


def test_parquet_of_values_read_in_c_has_the_bytes_of_values_read_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 3: the file depends on the rows alone, not on the machine that read them; a golden file would depend on pyarrow's version."""
    sink, rows = (
        FileSink(tmp_path, "parquet", MINUTE_US, COLUMNS),
        [(START_US, b"", b'{"n":%d,"odd":{"a":[%d]}}' % (at, at)) for at in range(9)],
    )
    in_c = sink.content(START_US, 0, SheetRows.of(rows + ROWS))
    monkeypatch.setattr(files, "make_table", lambda values, columns: scan_values(values.to_pylist(), columns))
    assert sink.content(START_US, 0, SheetRows.of(rows + ROWS)) == in_c


def test_a_sheet_is_a_sequence_of_rows_in_their_order() -> None:
    """By time, then key, then as they were given; as Python's sequences are read."""
    sheet = SheetRows.of(ROWS)
    assert list(sheet) == [ROWS[2], ROWS[1], ROWS[3], ROWS[0]] == list(SheetRows.of(sheet)) == sort_rows(ROWS, START_US, MINUTE_US)
    assert (len(sheet), sheet[0], sheet[-1], list(sheet[1:3]), list(sheet[::-2])) == (
        4,
        ROWS[2],
        ROWS[0],
        [ROWS[1], ROWS[3]],
        [ROWS[0], ROWS[1]],
    )
    assert not SheetRows.of([])
    with pytest.raises(AssertionError, match="outside its span"):
        sheet.check_span(START_US - MINUTE_US, MINUTE_US)


@given(seconds=st.lists(st.integers(0, 200), max_size=20))
def test_files_hold_what_the_memory_sink_shows(seconds: list[int]) -> None:
    """Read by name, the files are the rows in order of span and partition."""
    with tempfile.TemporaryDirectory() as folder:
        files, memory = FileSink(folder, "ndjson", MINUTE_US), MemorySink(MINUTE_US)
        for start in {span_start(START_US + second * SECOND_US, MINUTE_US) for second in seconds}:
            times = [START_US + second * SECOND_US for second in seconds]
            rows = [(tick, b"", b'{"t": %d}' % tick) for tick in times if start <= tick < start + MINUTE_US]
            for sink in (files, memory):
                sink.publish(start, 0, rows)
        read = b"".join(contents(Path(folder)).values()).splitlines()
        assert read == [row.value for row in memory.rows()]


@pytest.mark.parametrize("span_us", [1, 1_000, 250_000, SECOND_US, MINUTE_US])
def test_names_sort_by_time(tmp_path: Path, span_us: int) -> None:
    """Whatever the span length, also where some spans start at a full second."""
    sink = FileSink(tmp_path, "ndjson", span_us)
    names = [sink.name(START_US + step * span_us, 0) for step in range(12)]
    assert names == sorted(set(names))


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    """An empty sheet is not shown."""
    FileSink(tmp_path / "new", "ndjson", MINUTE_US).publish(START_US, 0, [])
    assert not (tmp_path / "new").exists()


def test_a_line_break_between_tokens_does_not_break_the_line(tmp_path: Path) -> None:
    """Each result is one line, however its JSON was laid out."""
    sink = FileSink(tmp_path, "ndjson", MINUTE_US)
    sink.publish(START_US, 0, [(START_US, b"", b'{\r\n "a": "x\\ny"}')])
    (line,) = (tmp_path / sink.name(START_US, 0)).read_bytes().splitlines()
    assert json.loads(line) == {"a": "x\ny"}


@pytest.mark.parametrize("value", [b'{"n": "many"}', b'{"avg": [1]}', b'{"at": "noon"}', b'{"name": 1}', b'{"more": 1}'])
def test_a_value_of_another_type_is_refused(tmp_path: Path, value: bytes) -> None:
    """Nothing is guessed, nothing is half written."""
    with pytest.raises(SinkError) as refusal:
        FileSink(tmp_path, "parquet", MINUTE_US, COLUMNS).publish(START_US, 0, [(START_US, b"", value)])
    assert refusal.value.code == "TG-SINK-TYPE"
    assert contents(tmp_path) == {}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands where the folder should."""
    (tmp_path / "out").write_text("")
    with pytest.raises(SinkError) as refusal:
        FileSink(tmp_path / "out", "ndjson", MINUTE_US).publish(START_US, 0, ROWS)
    assert refusal.value.code == "TG-SINK-FILE"
    assert str(tmp_path / "out") in refusal.value.where


_PUBLISH_FOR_EVER = """
import sys
from pathlib import Path
from ordering.ticks import MINUTE_US
from sinks.files import FileSink

folder, start_us = Path(sys.argv[1]), int(sys.argv[2])
rows = [(start_us + n, b"k", b'{"n": %d}' % n) for n in range(20_000)]
while True:
    FileSink(folder, "ndjson", MINUTE_US).publish(start_us, 0, rows)
"""


def test_a_reader_sees_whole_files_only_whatever_is_killed(tmp_path: Path) -> None:
    """Two writers of one sheet, killed at some moment: the file is whole each time it is looked at, and leftovers go."""
    program = [sys.executable, "-c", _PUBLISH_FOR_EVER, str(tmp_path), str(START_US)]
    writers = [subprocess.Popen(program, cwd=ROOT) for _ in range(2)]
    seen: set[bytes] = set()
    first_by_s = time.monotonic() + 60
    while not seen and time.monotonic() < first_by_s:
        seen.update(contents(tmp_path).values())
    deadline_s = time.monotonic() + 1.5
    while time.monotonic() < deadline_s:
        seen.update(contents(tmp_path).values())
    for writer in writers:
        assert writer.poll() is None
        writer.kill()
        writer.wait()
    assert len(seen) == 1
    FileSink(tmp_path, "ndjson", MINUTE_US).publish(START_US, 0, [(START_US, b"k", b'{"n": 0}')])
    assert len(list(tmp_path.iterdir())) == 1
