"""A file that is one JSON array: its elements are records, however the file is written and cut."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.records.files import blocks
from tidegate.records.files.blocks import Block, FileFormat
from tidegate.records.files.files import open_records
from tidegate.records.files.json_arrays import ArrayElements, JsonForm, MixedElements, ObjectElements, detect_form

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['"', "\\", "]", "[{,", '\\"'] * 2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3) | VALUES, max_size=6)


def read(content: bytes, block_bytes: int = 2**20) -> Block:
    """Return all records of a file."""
    every = Block()
    for block in open_records("-", FileFormat.NDJSON, io.BytesIO(content), ",", block_bytes).blocks():
        for each in ("line", "text", "fields", "fault"):
            getattr(every, each).extend(getattr(block, each))
    return every


@given(RECORDS, st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 60))
def test_an_array_is_read_as_a_json_reader_reads_it(records: list[Any], indent: int | None, is_ascii: bool, block_bytes: int) -> None:
    """Objects are records, anything else is told; the numbers count from 1; no cut changes a byte."""
    first: dict[str, Any] = {}
    content = b"\xef\xbb\xbf " + json.dumps([first, *records], indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    found = read(content, block_bytes)
    assert found.line == list(range(1, len(records) + 2))
    assert [json.loads(text) for text in found.text] == [first, *records]
    assert [fault is None for fault in found.fault] == [isinstance(one, dict) for one in [first, *records]]
    assert not any(b"\n" in text for text in found.text)


@pytest.mark.parametrize("elements_of", [ObjectElements, MixedElements])
@given(content=st.binary(max_size=60).map(lambda rest: b"[{" + rest), piece=st.integers(1, 9))
def test_no_cut_changes_what_is_found_in_bytes_of_any_kind(elements_of: type[ArrayElements], content: bytes, piece: int) -> None:
    """Broken arrays too."""

    def found(size: int) -> list[bytes]:
        elements = elements_of(20)
        every = [one for at in range(0, len(content), size) for one in elements.feed(content[at : at + size])]
        return [*every, *elements.flush()]

    assert found(piece) == found(1_000)


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        (b'[{"a":1},{"a":2}]', [None, None]),
        (b'[{"a":1}]\n[{"a":2}]\n', [None, None]),
        (b'[{"a":1},{"a":2}]\n{"a":3,"b":[1,{}]}\n[]\n{"a":4}\n[{"a":5},6]', [None, None, None, None, None, "object"]),
        (b'[{"a":1}]\nnonsense\n{"a":3,"b":4}\n', [None, "json", None]),
        (b'[ {"a":1}, 5, {broken}, {"a":2} ]', [None, "object", "json", None]),
        (b'[{"a":1}, {"a":', [None, "json"]),
        (b'[{"a":1}] and more', [None, "json"]),
        (b"[]", []),
    ],
)
def test_what_is_between_two_commas_is_a_record(content: bytes, faults: list[str | None]) -> None:
    """Whether it can be read or not; what is cut off or stands behind the array is told too."""
    assert read(content).fault == faults


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", JsonForm.LINES),
        (b"[1,2]\n", JsonForm.LINES),
        (b' \n[ \n{"a":1}]', JsonForm.ARRAY),
        (b'{"a":[]}', JsonForm.LINES),
        (b'{"a":{"b":"\\"}{"}}\n{\n"a":1}', JsonForm.LINES),
        (b'\xef\xbb\xbf{\n "a": 1\n}', JsonForm.OBJECTS),
        (b'\n{"a": 1,\r\n"b": {"c": 2}}\n{"a": 3}\n', JsonForm.OBJECTS),
        (b'{"a": 1, "b":\n{"a": 2}\n{"a": 3}\n', JsonForm.LINES),
        (b'{"a": 1,\n "b" 2}\n{"a": 3}\n', JsonForm.LINES),
        (b'{"a": 1, "b": [', JsonForm.LINES),
        (b'{"a":"' + b"x" * 10_000 + b'",\n"b":1}', JsonForm.OBJECTS),
    ],
)
def test_the_form_of_a_file_is_told_from_its_beginning(content: bytes, expected: JsonForm) -> None:
    """
    An array by its first two signs; objects over several lines by the first one, which ends on a later line and is JSON. A first line that
    is cut off, or no JSON, is a line that cannot be read.
    """
    assert detect_form(io.BytesIO(content))[0] is expected


@given(
    st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), min_size=1, max_size=6),
    st.integers(0, 2),
    st.sampled_from(["\n", ",\n", "\n\n"]),
    st.integers(1, 60),
)
def test_objects_over_several_lines_are_read_as_a_json_reader_reads_them(
    records: list[dict[str, Any]], indent: int, between: str, block_bytes: int
) -> None:
    """Pretty-printed, with or without commas between them; no cut changes a byte."""
    records = [{"a": 1}, *records]
    content = between.join(json.dumps(record, indent=indent) for record in records).encode()
    found = read(content, block_bytes)
    assert found.line == list(range(1, len(records) + 1))
    assert [json.loads(text) for text in found.text] == records
    assert not any(found.fault)
    assert not any(b"\n" in text for text in found.text)


def test_one_broken_object_among_several_lines_costs_itself() -> None:
    """What stands between two objects is an element too."""
    found = read(b'{\n"a": 1\n}\nnonsense\n{\n"a" 2\n}\n{\n"a": 3\n}\n', 5)
    assert found.fault == [None, "json", "json", None]


@given(
    st.lists(st.sampled_from([b'{"a":1}', b'{"a":1} ,', b'{"a":1},', b"", b",", b'{"a":1},\r', b'"x,"']), max_size=9), st.integers(1, 30)
)
def test_a_comma_at_the_end_of_a_line_is_no_part_of_the_record(lines: list[bytes], block_bytes: int) -> None:
    """Lines that were cut out of an array are records; their numbers are those of the lines."""
    content = b"\n".join([b'{"a":0},', *lines])
    found = read(content, block_bytes)
    expected = {number: line.strip(b" \r").removesuffix(b",").rstrip() for number, line in enumerate(content.split(b"\n"), start=1)}
    assert dict(zip(found.line, found.text, strict=True)) == {number: line for number, line in expected.items() if line}


@given(
    st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=3),
    st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3) | st.lists(st.dictionaries(st.text(max_size=4), VALUES)), max_size=4),
    st.booleans(),
    st.integers(1, 60),
)
def test_objects_after_an_array_are_records_whether_arrays_are_exploded_or_not(
    first: list[Any], lines: list[Any], explodes: bool, block_bytes: int
) -> None:
    """A file that begins with an array is read by elements: an object of a later line is never cut at its commas."""
    first = [{"a": 1, "b": 2}, *first]
    content = "\n".join(json.dumps(line) for line in [first, *lines]).encode("utf-8", "surrogatepass")
    opened = open_records("-", FileFormat.NDJSON, io.BytesIO(content), ",", block_bytes, explodes=explodes)
    found = [(line, json.loads(text)) for block in opened.blocks() for line, text in zip(block.line, block.text, strict=True)]
    expected = [*first, *(element for line in lines for element in (line if isinstance(line, list) else [line]))]
    assert found == list(enumerate(expected, start=1))


def test_an_element_that_is_too_long_is_told_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not kept in memory."""
    monkeypatch.setattr(blocks, "RECORD_BYTES_MAX", 20)
    found = read(b'[{"a":1},{"a":"' + b"x" * 100 + b'"},{"a":2}]', 7)
    assert found.fault == [None, "too_long", None]


def test_a_pipe_is_read_no_further_than_it_takes_to_tell() -> None:
    """Else a stream that fills slowly would show nothing."""

    class Slow(io.RawIOBase):
        asked = 0

        def read1(self, size: int) -> bytes:
            self.asked += 1
            return b'{"a":1}\n'

    source = Slow()
    assert detect_form(source) == (JsonForm.LINES, b'{"a":1}\n')  # type: ignore[arg-type]
    assert source.asked == 1


def test_the_order_command_and_local_read_such_a_file(tmp_path: Path) -> None:
    """The number of the element stands where the line stood."""
    from typer.testing import CliRunner

    from tidegate.tools.commands.main import build

    path, script = tmp_path / "a.json", tmp_path / "q.sql"
    path.write_text('[\n  {"at": "2001-01-01T00:00:01Z",\n   "v": 1},\n  7,\n  {"at": "2001-01-01T00:00:02Z", "v": 2}\n]\n')
    script.write_text("SELECT v INTO out FROM a TIMESTAMP BY at")
    ordered = CliRunner().invoke(build("order"), ["order", str(path), "--timestamp-by", "at"])
    assert [json.loads(line)["origin"] for line in ordered.stdout.splitlines()] == [[0, 1], [0, 3]]
    told = CliRunner().invoke(build("local"), ["local", str(script), "--input", f"a={path}", "--output-dir", str(tmp_path / "to")])
    assert told.exit_code == 0
    assert (tmp_path / "to" / "out.ndjson").read_text() == '{"v":1}\n{"v":2}\n'
    assert json.loads((tmp_path / "to" / "dead.ndjson").read_text())["line"] == 2


LINES = '{"at": 100}\n[{"at": 101}, {"at":102,"x":"],{"}, 7]\n[]\n{"at": 103}\n'


@pytest.mark.parametrize("block_bytes", [1, 7, 30, 1000])
@pytest.mark.parametrize(
    "text",
    [
        LINES,
        '[{"at": 100}]\n[{"at": 101},\n{"at":102,"x":"],{"}, 7]\n{"at": 103}',
        '[{"at": 100}, {"at": 101}]{"at":102,"x":"],{"},[7],{"at": 103}',
    ],
)
def test_arrays_among_objects_are_their_elements_if_asked_for(text: str, block_bytes: int) -> None:
    """On lines and over several, wherever the file is cut; records are numbered by elements."""
    source = io.BytesIO(text.encode())
    blocks = list(open_records("-", FileFormat.NDJSON, source, ",", block_bytes, explodes=True).blocks())
    found = [(line, fields, fault) for block in blocks for line, fields, fault in zip(block.line, block.fields, block.fault, strict=True)]
    assert [(line, fields and fields["at"], fault) for line, fields, fault in found] == [
        (1, 100, None),
        (2, 101, None),
        (3, 102, None),
        (4, None, "object"),
        (5, 103, None),
    ]


def test_a_broken_line_among_arrays_costs_itself_alone() -> None:
    """As in every file of lines."""
    source = io.BytesIO(b'{"at": 100}\n[{"at": 1}\n[{"at": 101}]\n{"at": 102\n{"at": 103}\n')
    blocks = list(open_records("-", FileFormat.NDJSON, source, ",", 1000, explodes=True).blocks())
    assert [fields and fields["at"] for block in blocks for fields in block.fields] == [100, None, 101, None, 103]
