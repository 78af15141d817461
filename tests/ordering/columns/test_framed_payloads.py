"""Headers and payload travel as one value, and come apart as they were, one by one and by whole columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.columns.framed_payloads import Headers, frame_payload, header_texts, headers_of, payload_of, payloads_of

NAMES = ("x", "trace-id", "Zürich", "x" * 300)
VALUES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5)
ROWS = st.lists(st.tuples(HEADERS, st.none() | st.binary(max_size=40)), max_size=30)
KINDS = st.sampled_from([pa.binary(), pa.large_binary()])

Row = tuple[Headers, bytes | None]


def framed_column(rows: list[Row], kind: pa.DataType) -> pa.Array:
    """Return the rows as a framed column, in the middle of a longer one."""
    others = [frame_payload([("x", b"another row")], b"another row")] * 2
    return pa.array([*others, *(frame_payload(*row) for row in rows), *others], kind)[2 : 2 + len(rows)]


@given(ROWS)
def test_a_frame_comes_off_as_it_went_on(rows: list[Row]) -> None:
    """Null is no payload, and has no frame; empty values stay empty and absent ones absent."""
    for headers, payload in rows:
        framed = frame_payload(headers, payload)
        if framed is None:
            assert payload is None
        else:
            assert (headers_of(framed), payload_of(framed)) == (headers, payload)
            assert headers_of(memoryview(framed)) == headers


@given(ROWS, KINDS)
def test_a_column_has_the_payloads_of_its_rows(rows: list[Row], kind: pa.DataType) -> None:
    """In the type of the framed column, which may be a slice of another."""
    payloads = payloads_of(framed_column(rows, kind))
    assert payloads.type == kind
    assert payloads.to_pylist() == [payload for _, payload in rows]


@given(ROWS, KINDS, st.sampled_from([*NAMES, "no such"]))
def test_a_header_has_the_last_value_of_its_name(rows: list[Row], kind: pa.DataType, name: str) -> None:
    """Also if that is null; what is no UTF-8 is replaced, whatever stands in other rows."""
    wanted = []
    for headers, payload in rows:
        values = [value for other, value in headers if other == name and payload is not None]
        wanted.append(values[-1].decode(errors="replace") if values and values[-1] is not None else None)
    assert header_texts(framed_column(rows, kind), name).to_pylist() == wanted


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_columns_without_a_payload_have_neither_payloads_nor_headers(kind: pa.DataType) -> None:
    """Arrow's columns of nulls alone, or of nothing, may have no bytes at all."""
    for count in (0, 3):
        assert payloads_of(pa.nulls(count, kind)).to_pylist() == header_texts(pa.nulls(count, kind), "x").to_pylist() == [None] * count


def test_a_frame_has_the_bytes_that_the_native_part_reads_and_writes() -> None:
    """Worked out by hand: 11 and 9 bytes of entries, "ab" with the value "z", "c" without one, the payload."""
    wanted = "14000000 02000000 01000000 6162 7a 01000000 ffffffff 63 7b7d"
    assert frame_payload([("ab", b"z"), ("c", None)], b"{}") == bytes.fromhex(wanted)
