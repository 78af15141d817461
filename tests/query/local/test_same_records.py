"""
The law of JSON records: ingest, queries, ``tidegate local`` and ``tidegate order`` take the same ones,
with the same time and the same key.

Each way reads each record by itself: ingest with and without its compiled part, and by an expression; a query; a file for ``local``; a file
for ``order``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.policies import Policies
from query.local.files import LocalFile
from query.local.inputs import FileInput, TimeRules
from query.plan.nodes import Scan
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.language.expressions import json_members
from tidegate.language.expressions.json_texts import NESTING_MAX, is_too_deep, too_deep
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.records.fields import FieldReader, Fields
from tidegate.records.files.blocks import Block, FileFormat
from tidegate.records.files.files import open_records
from tidegate.records.files.rows import FieldNames, OrderPlan, Rows
from tidegate.records.payloads.csv_records import CsvReader

# Microseconds and key of a usable record, None for another one.
Verdict = tuple[int, bytes] | None
AT, KEY = Field(("at",)), Field(("k",))
DAY_US = 978_307_200_000_000


def deep(levels: int) -> bytes:
    """A record whose objects and arrays are nested so deep, itself included."""
    return b'{"at":978307200,"k":1,"d":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


# What a record is that all take, and what none does.
USABLE: list[tuple[bytes, bytes]] = [
    (b'{"at":978307200,"k":"x"}', b"x"),
    (b'\t {"at":978307200 , "k" : "x" }\r', b"x"),
    (b'{"at":978307200,"k":"x",}', b"x"),
    (b'{"k":[1,2,],"at":978307200}', b"[1,2]"),
    (b'{"at":978307200,"k":NaN}', b""),
    (b'{"at":978307200,"k":-Infinity,"z":[nan,INF,{"a":-inf}]}', b""),
    (b'{"at":978307200,"k":1e400}', b""),
    (b'{"at":978307200,"k":[1e400,-1e400,NaN,-inf,"inf"]}', b'[null,null,null,null,"inf"]'),
    (b'{"at":978307200,"k":[9223372036854775807,{"a":18446744073709551616}]}', b'[9223372036854775807,{"a":1.8446744073709552e+19}]'),
    (b'{"at":978307200,"k":[1.0,-0.0,{"a":1e5}]}', b'[1,0,{"a":100000}]'),
    (b'{"at":978307200,"k":{"b":[],"a":1,"b":2}}', b'{"a":1,"b":[]}'),
    (b'{"at":978307200,"k":1e-400}', b"0"),
    (b'{"at":978307200,"k":12345678901234567890123}', b"1.2345678901234568e+22"),
    (b'{"at":978307200,"k":9223372036854775808}', b"9.223372036854776e+18"),
    (b'{"at":978307200,"k":-9223372036854775808.0}', b"-9223372036854775808"),
    (b'{"at":978307200,"k":9007199254740993}', b"9007199254740993"),
    (b'{"at":978307200,"k":9007199254740993.0}', b"9007199254740992"),
    (b'{"at":978307200,"k":5.0}', b"5"),
    (b'{"at":978307200,"k":""}', b'""'),
    (b'{"at":978307200,"k":1E5}', b"100000"),
    (b'{"at":978307200.0,"k":-0}', b"0"),
    (b'{"at":9.783072e8,"k":-0.0}', b"0"),
    (b'{"at":978307200,"k":"a","k":"b","at":5}', b"a"),
    (b'{"\\u0061t":978307200,"k":"a","at":5}', b"a"),
    (b'{"at":978307200,"k":"a","\\u006b":"b"}', b"a"),
    (b'{"at":978307200,"z":{"at":1,"k":2},"k":"a"}', b"a"),
    (b'{"AT":978307200,"K":1}', b"1"),
    (b'{"AT":5,"K":"a","at":978307200,"k":"b"}', b"b"),
    (b'{"At":978307200,"K":"a","AT":5,"K":"b"}', b"a"),
    ('{"at":978307200,"\u212a":1}'.encode(), b"1"),
    (b'{"at":978307200,"\\u212a":1,"\\u212a":2}', b"1"),
    (b'{"at":978307200}', b""),
    (b'{"at":978307200,"k":null}', b""),
    (b'{"at":978307200,"k":"\\ud83d\\ude00\\u0000\\/"}', "😀\0/".encode()),
    ('{"at":978307200,"k":"é\x7f"}'.encode(), "é\x7f".encode()),
    (b'{"at":978307200,"k":true,"":1,"z":"at"}', b"true"),
    (b'{"at":"2001-01-01T00:00:00Z","k":{"b":1.50,"a":[{}]}}', b'{"a":[{}],"b":1.5}'),
    (b'{"at":978307200,"k":1,"s":"' + b"[" * 2_000 + b'"}', b"1"),
    (deep(NESTING_MAX), b"1"),
]
UNUSABLE = [
    b'{"at":978307200,"k":"x"',
    b'{"at":978307200,"k":"x"}}',
    b'{"at":978307200,"k":"x"}{}',
    b'{"at":978307200,,"k":"x"}',
    b"{,}",
    b'{"at":978307200,"k":"\\ud800"}',
    b'{"at":978307200,"k":"\\udc00\\ud800"}',
    b'{"at":978307200,"k":"\xed\xa0\x80"}',
    b'{"at":978307200,"k":"\xff"}',
    b'{"at":978307200,"k":"\xc0\x80"}',
    b'{"at":978307200,"k":"\x01"}',
    b'{"at":978307200,"k":"\t"}',
    b'{"at":978307200,"k":"\\x41"}',
    b'{"at":978307200,"k":+1}',
    b'{"at":978307200,"k":01}',
    b'{"at":978307200,"k":.5}',
    b'{"at":978307200,"k":5.}',
    b'{"at":978307200,"k":0x5}',
    b"{'at':978307200}",
    b"{at:978307200}",
    b'{"at":978307200}//x',
    b'{"at":978307200,"k":nanx}',
    b'{"at":NaN,"k":1}',
    b'{"at":"soon"}',
    b'{"AT":978307200,"at":null,"k":1}',
    b"{}",
    b"[5]",
    b"5",
    b"null",
    b'"at"',
    b"NaN",
    b"x",
    deep(NESTING_MAX + 1),
    deep(100_000),
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
]


def ingest_verdicts(payload: bytes, timestamp_by: str = "at") -> Iterator[Verdict]:
    """What ingest makes of a record: alone, and beside one that its compiled part reads."""
    for payloads in ([payload], [b'{"at":5,"k":"y"}'] * 4 + [payload]):
        fields: Fields = FieldReader(timestamp_by, "auto", "k").read(pa.array(payloads, pa.binary()))
        assert fields.substream is not None
        yield (int(fields.event_time_us[-1]), fields.substream[-1].as_py()) if fields.readable[-1] else None


def query_verdict(payload: bytes) -> bool:
    """Whether a query can use a record's fields."""
    return not len(json_members.extract(pa.array([payload], pa.binary()), [AT, KEY]).bad_rows)


def block_of(payload: bytes) -> Block | None:
    """A record as a file's only line."""
    return next(iter(open_records("-", FileFormat.NDJSON, io.BytesIO(payload + b"\n"), ",", 1 << 20).blocks()), None)


def local_verdict(payload: bytes, folder: Path) -> Verdict:
    """What ``tidegate local`` makes of a record."""
    file = folder / "a.ndjson"
    file.write_bytes(payload + b"\n")
    scan = Scan("a", timestamp_by=AT, over=KEY)
    source = FileInput(LocalFile("a", str(file), FileFormat.NDJSON), scan, TimeRules(Policies(late_us=5)), 1 << 20)
    steps, _ = source.read()
    steps += source.read()[0]
    events = [(int(step.released.system_us[0]), step.released.key[0]) for step in steps if len(step.released)]
    source.close()
    return (events[0][0], as_bytes(events[0][1])) if events else None


def as_bytes(key: Any) -> bytes:
    """The key of a released event."""
    return key.as_py() if isinstance(key, pa.Scalar) else key


def order_verdict(payload: bytes) -> Verdict:
    """What ``tidegate order`` makes of a record; what it writes of it is JSON to every parser."""
    block = block_of(payload)
    assert block is not None
    rows = Rows(FieldNames(OrderPlan(Policies(), AT.path, over=KEY.path, has_arrival=False)), block)
    assert rows.event_us is not None
    assert rows.substream is not None
    if rows.is_bad[0]:
        return None
    json.loads(block.text[0], parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    return int(rows.event_us[0]), rows.substream[0].as_py()


def all_verdicts(payload: bytes, folder: Path) -> dict[str, Verdict]:
    """What each way makes of a record."""
    verdicts: dict[str, Verdict] = {}
    for native in ("auto", "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(NATIVE_SWITCH, native)
            alone, beside = ingest_verdicts(payload)
            verdicts |= {f"ingest, {native}": alone, f"ingest beside others, {native}": beside}
            verdicts[f"local, {native}"], verdicts[f"order, {native}"] = local_verdict(payload, folder), order_verdict(payload)
            assert alone is None or query_verdict(payload), "a query takes what ingest passes on"
    return verdicts


@pytest.mark.parametrize(("payload", "key"), USABLE)
def test_a_record_that_one_takes_all_take(payload: bytes, key: bytes, tmp_path: Path) -> None:
    """Level 1: and they read the same time and the same key from it."""
    assert set(all_verdicts(payload, tmp_path).values()) == {(DAY_US, key)}
    computed, _ = ingest_verdicts(payload, "DATEADD(second, 0, at)") if payload.startswith(b'{"at":"') else ((DAY_US, key), None)
    assert computed == (DAY_US, key)


@pytest.mark.parametrize("payload", UNUSABLE)
def test_a_record_that_one_refuses_all_refuse(payload: bytes, tmp_path: Path) -> None:
    """Broken, without a time, or nested too deeply."""
    assert set(all_verdicts(payload, tmp_path).values()) == {None}


NUMBERS = st.sampled_from(
    ["1", "-0", "1e5", "1E-7", "2.50", "1e400", "9" * 25, "-9223372036854775809", "NaN", "-inf", "0.1", "1700000000.25"]
)
TEXTS = st.sampled_from(['"x"', '"\\u00e9"', '"é"', '"\\ud800"', '"\\n"', '"2001-01-01"', '""', '"\\u006b"', '"a\tb"'])
JSON_VALUES = st.recursive(
    st.one_of(NUMBERS, TEXTS, st.sampled_from(["null", "true", "false", "tru", ""])),
    lambda inner: st.one_of(
        st.tuples(st.lists(inner, max_size=3), st.sampled_from(["", ",", " "])).map(lambda pair: f"[{','.join(pair[0])}{pair[1]}]"),
        st.lists(st.tuples(st.sampled_from(['"k"', '"at"', '"\\u006b"', '"z"']), inner), max_size=3).map(
            lambda members: "{" + ",".join(f"{name}:{value}" for name, value in members) + "}"
        ),
    ),
    max_leaves=6,
)
MEMBERS = st.lists(st.tuples(st.sampled_from(['"k"', '"at"', '"AT"', '"z"', '"\\u0061t"']), JSON_VALUES), max_size=4)


@given(MEMBERS, st.sampled_from(["", ",", " ", "}", "\x00", "\ufeff"]), st.sampled_from(["978307200", '"2001-01-01T00:00:00Z"']))
def test_what_one_way_says_of_a_record_all_say(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, str]], ending: str, at: str
) -> None:
    """Level 1: drawn records, odd and broken ones among them."""
    text = "{" + ",".join(f"{name}:{value}" for name, value in [*members, ('"at"', at)]) + ending + "}"
    verdicts = all_verdicts(text.encode(), tmp_path_factory.getbasetemp())
    assert len(set(verdicts.values())) == 1, verdicts


@given(st.text(alphabet='[]{}"\\a,', max_size=40), st.integers(1, 8))
def test_nesting_is_that_of_a_parser(text: str, levels: int) -> None:
    """Of JSON; brackets in text do not count."""

    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    wrapped = json.dumps([text] * levels)
    for _ in range(levels):
        wrapped = f'{{"{text.translate(str.maketrans("", "", chr(34) + chr(92)))}":[{wrapped}]}}'
    with pytest.MonkeyPatch.context() as patch:
        for most in range(2 * levels + 3):
            patch.setattr("tidegate.language.expressions.json_texts.NESTING_MAX", most)
            expected = depth(json.loads(wrapped)) > most
            assert is_too_deep(wrapped.encode()) == expected
            assert too_deep(pa.array([None, wrapped])).tolist() == [False, expected]


CSV_VALUES = st.tuples(st.text(alphabet='ab;"\n é', max_size=5), st.booleans())


@given(st.lists(CSV_VALUES, min_size=3, max_size=3), st.lists(CSV_VALUES, min_size=3, max_size=3))
def test_a_line_of_a_file_has_the_values_of_a_csv_payload(first: list[tuple[str, bool]], second: list[tuple[str, bool]]) -> None:
    """An empty value is NULL without quotes, as ``csv_columns`` of an input reads it; in quotes it is text."""
    lines = [";".join(_csv_value(text, is_quoted) for text, is_quoted in values) for values in (first, second)]
    records = open_records("-", FileFormat.CSV, io.BytesIO("\n".join(["x;y;z", *lines, ""]).encode()), ";", 10**6)
    read = [list(fields.values()) if fields else None for block in records.blocks() for fields in block.fields]
    names = [Field((name,)) for name in "xyz"]
    taken = CsvReader(("x", "y", "z"), ";").extract(pa.array([line.encode() for line in lines], pa.binary()), names)
    columns = [taken.columns[name].of_kind(Kind.NVARCHAR).to_pylist() for name in names]
    assert not len(taken.bad_rows)
    assert read == [list(values) for values in zip(*columns, strict=True)]


def _csv_value(text: str, is_quoted: bool) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if is_quoted or set(text) & set(';"\n') else text
