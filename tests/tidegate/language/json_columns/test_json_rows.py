"""Rows of JSON by the native part: the same bytes as Python's own writers, value by value."""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.same_value import form

from query.columns import encode
from query.columns.encode import encode_keys, encode_objects
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant
from tidegate.language.json_columns import json_rows

FEW_DIGITS = st.builds(lambda digits, places: digits / 10**places, st.integers(-(10**15), 10**15), st.integers(0, 22))
FLOATS = st.one_of(FEW_DIGITS, st.floats(allow_nan=False, allow_infinity=False))
BIGINTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=6)
SAFE = st.text(st.characters(min_codepoint=0x20, exclude_characters='"\\', exclude_categories=["Cs"]), max_size=6)


@pytest.fixture(autouse=True)
def _native() -> None:
    assert json_rows.library() is not None, "make install compiles it"


def _written(column: json_rows.JsonColumn, rows: int) -> list[bytes]:
    """What the native part alone makes of a column: it may ask for no text."""
    return [bytes(value) for value in _written_column(column, rows).to_pylist()]


def _written_column(column: json_rows.JsonColumn, rows: int) -> pa.Array:

    def refuse(at: int) -> pa.Array:
        raise AssertionError(f"column {at} is not plain")

    library = json_rows.library()
    assert library is not None
    found = json_rows.write_rows(library, [column], b"", rows, refuse)
    assert found is not None
    found.validate(full=True)
    return found


@given(st.lists(FEW_DIGITS, max_size=40))
@example([0.0, -0.0, 1.0, -1.5, 1e-4, 9.9e-5, -5.2e-05, 1e-22, 0.1, 0.3, 999999999999999.0, 99999999999999.9, 123456.789012345])
def test_floats_of_few_digits_are_written_as_repr_does(values: list[float]) -> None:
    """Of up to 15 digits, with exponent or without, and the zeros."""
    plain = [value for value in values if len(repr(value).partition("e")[0].replace(".", "").strip("-0")) <= 15 and abs(value) < 1e15]
    column = json_rows.JsonColumn(b"", json_rows.FLOAT, pa.array(plain, pa.float64()))
    assert _written(column, len(plain)) == [repr(value).encode() for value in plain]


def test_floats_of_all_sizes_are_written_as_repr_does() -> None:
    """Two million: of few digits, and neighbours of such, which have many; those are left to others or right."""
    dice = np.random.default_rng(5)
    digits, places = dice.integers(-(10**15), 10**15, 1_000_000) // 10 ** dice.integers(0, 15, 1_000_000), dice.integers(0, 23, 1_000_000)
    plain = np.unique(digits / 10.0**places)
    beside = np.nextafter(plain, np.inf)
    for value in np.concatenate([plain[:: len(plain) // 3000], beside[:: len(beside) // 3000]]).tolist():
        library = json_rows.library()
        assert library is not None
        part = pa.array([value], pa.float64())
        text = pa.array([repr(value)])
        found = json_rows.write_rows(library, [json_rows.JsonColumn(b"", json_rows.FLOAT, part)], b"", 1, lambda at, text=text: text)  # type: ignore[misc]
        assert found is not None
        assert found[0].as_py() == repr(value).encode()
    texts = encode_objects(["v"], [Variant.of(len(plain), {Kind.FLOAT: pa.array(plain)})], len(plain))
    assert texts.to_pylist() == [b'{"v":%s}' % repr(value).encode() for value in plain.tolist()]


# One is enough for make check.
@pytest.mark.parametrize("days_apart", [20, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize(("digits", "unit", "below"), [(0, "s", 86_400), (3, "ms", 86_400_000), (6, "us", 86_400_000_000)])
def test_times_of_every_day_are_written_as_numpy_writes_them(digits: int, unit: str, below: int, days_apart: int) -> None:
    """The years 1 to 9999, each day (or each twentieth) at a time of its own, in whole seconds, milliseconds and microseconds."""
    days = np.arange("0001-01-01", "10000-01-01", days_apart, dtype="datetime64[D]").astype("datetime64[us]").astype(np.int64)
    ticks = days + np.random.default_rng([7, digits]).integers(0, below, len(days)) * 10 ** (6 - digits)
    ticks = ticks[ticks % 1000 != 0] if digits == 6 else ticks[ticks % 1_000_000 != 0] if digits else ticks
    texts = np.datetime_as_string(ticks.astype("datetime64[us]"), unit=unit).astype("S")
    written = _written_column(json_rows.JsonColumn(b"", json_rows.DATETIME, pa.array(ticks)), len(ticks))
    due = pc.binary_join_element_wise(b'"', pa.array(texts, pa.binary()), b'Z"', b"")
    # Only long columns come in chunks.
    chunks = due.chunks if isinstance(due, pa.ChunkedArray) else [due]
    assert pa.chunked_array([written.cast(pa.binary())]).equals(pa.chunked_array(chunks))


def test_times_beyond_the_years_are_left_to_others() -> None:
    """A microsecond before and after, beside one that C writes."""
    library = json_rows.library()
    assert library is not None
    for tick in (-62_135_596_800_000_001, 253_402_300_800_000_000):
        column = json_rows.JsonColumn(b"", json_rows.DATETIME, pa.array([0, tick], pa.int64()))
        found = json_rows.write_rows(library, [column], b"", 2, lambda _: pa.array(["one", "other"]))
        assert found is not None
        assert found.to_pylist() == [b"one", b"other"]


@given(
    st.lists(
        st.tuples(st.none() | BIGINTS, st.none() | FLOATS, st.none() | TEXTS, st.none() | SAFE, st.none() | st.booleans()), max_size=30
    )
)
@example([(None, None, None, None, None), (2**63 - 1, 0.1, "\x1f", "é", True), (-(2**63), 5e-324, "", "", False)])
def test_rows_are_what_json_writes(rows: list[tuple[int | None, float | None, str | None, str | None, bool | None]]) -> None:
    """Each kind of values, with nulls, through the native part and without it; slices of columns too."""
    kinds = (Kind.BIGINT, Kind.FLOAT, Kind.NVARCHAR, Kind.NVARCHAR, Kind.BIT)
    types = (pa.int64(), pa.float64(), pa.string(), pa.string(), pa.bool_())
    names = ["n", "f", 'odd "name"', "é", "b"]
    padded = [(7, 7.5, "pad", "pad", True), *rows]
    columns = [
        Variant.of(len(rows), {kind: pa.array([row[at] for row in padded], type_).slice(1)})
        for at, (kind, type_) in enumerate(zip(kinds, types, strict=True))
    ]
    expected = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, separators=(",", ":")).encode() for row in rows]
    keys = [json.dumps([form(value) for value in row], ensure_ascii=False, separators=(",", ":")).encode() for row in rows]
    assert encode_objects(names, columns, len(rows)).to_pylist() == expected
    assert encode_keys(columns, len(rows)).to_pylist() == keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode.json_rows, "library", lambda: None)
        assert encode_objects(names, columns, len(rows)).to_pylist() == expected
        assert encode_keys(columns, len(rows)).to_pylist() == keys


@given(st.lists(st.floats(), max_size=20))
def test_any_bits_are_a_float_or_left_to_others(values: list[float]) -> None:
    """Infinities and what is no number too: the native part never writes them."""
    library = json_rows.library()
    assert library is not None
    for value in [*values, float("nan"), float("inf"), -float("inf"), struct.unpack("<d", b"\xff" * 8)[0]]:
        asked: list[int] = []
        text = pa.array(["left"])

        def text_of(at: int, asked: list[int] = asked, text: pa.Array = text) -> pa.Array:
            asked.append(at)
            return text

        found = json_rows.write_rows(
            library, [json_rows.JsonColumn(b"", json_rows.FLOAT, pa.array([value], pa.float64()))], b"", 1, text_of
        )
        assert found is not None
        assert found[0].as_py() == (b"left" if asked else repr(value).encode())
