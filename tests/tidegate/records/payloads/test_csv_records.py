"""One CSV record a payload, as RFC 4180 writes it: what each value is, and which payloads are none."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.language.expressions.field_columns import NO_PAYLOAD, NOT_UTF8
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.csv_records import NOT_CSV, WRONG_COUNT, CsvReader

COLUMNS = ("a", "b", "c")
Row = tuple[str | None, ...] | str


def rows(payloads: list[bytes | None], delimiter: str = ",") -> list[Row]:
    """The three values of each payload, or why it is bad."""
    fields = [Field((name,)) for name in COLUMNS]
    found = CsvReader(COLUMNS, delimiter).extract(pa.array(payloads, pa.binary()), fields)
    columns = [found.columns[field].of_kind(Kind.NVARCHAR).to_pylist() for field in fields]
    bad = dict(zip(found.bad_rows.tolist(), found.reasons, strict=True))
    assert all(column[row] is None for column in columns for row in bad)
    told: dict[int, Row] = {**bad}
    return [told.get(row, values) for row, values in enumerate(zip(*columns, strict=True))]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"1,x,2.5", ("1", "x", "2.5")),
        (b"1,,", ("1", None, None)),
        (b'1,"",', ("1", "", None)),
        (b'"a,b","say ""x""","two\r\nlines"', ("a,b", 'say "x"', "two\r\nlines")),
        (b"1,2,3\n", ("1", "2", "3")),
        (b"1,2,3\r\n", ("1", "2", "3")),
        (b'1,2,"3"\r\n', ("1", "2", "3")),
        (b"1,2,3\n\n", NOT_CSV),
        (b"1,2,3\r", NOT_CSV),
        (b"1,2\n,3", NOT_CSV),
        (b" 1 ,2, ", (" 1 ", "2", " ")),
        (b'1, "2",3', NOT_CSV),
        (b'1,a"b,3', NOT_CSV),
        (b'1,"a"b,3', NOT_CSV),
        (b'1,"a,3', NOT_CSV),
        (b'"', NOT_CSV),
        (b"", WRONG_COUNT),
        (b"\n", WRONG_COUNT),
        (b"1,2", WRONG_COUNT),
        (b"1,2,3,4", WRONG_COUNT),
        (b'"1","2"', WRONG_COUNT),
        (b'"1","2","3","4"', WRONG_COUNT),
        (b"1,\xff,3", NOT_UTF8),
        (b"1,a\0b,3", ("1", "a\0b", "3")),
        ("1,Zürich 😀,3".encode(), ("1", "Zürich 😀", "3")),
        (None, NO_PAYLOAD),
    ],
)
def test_a_payload_is_one_record(payload: bytes | None, expected: Row) -> None:
    """Values are text, empty ones without quotes NULL; nothing is guessed where the record is not exact."""
    assert rows([payload]) == [expected]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ".", "ß"])
def test_any_sign_may_separate(delimiter: str) -> None:
    """Also one that means something to regular expressions; a comma is then a sign like any other."""
    assert rows([f'1,5{delimiter}"a{delimiter}b"{delimiter}'.encode(), f"x{delimiter}{delimiter},".encode()], delimiter) == [
        ("1,5", f"a{delimiter}b", None),
        ("x", None, ","),
    ]


TEXTS = st.text(alphabet='ab,"\r\n é\0', max_size=6)
PAYLOADS = st.one_of(
    st.lists(TEXTS, min_size=2, max_size=4).map(lambda values: _written(values)), st.binary(max_size=8), st.none(), TEXTS.map(str.encode)
)


def _written(values: list[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(values)
    return out.getvalue().encode()


@given(st.lists(PAYLOADS, max_size=10))
def test_a_payload_gives_the_same_alone_and_among_any_neighbours(payloads: list[bytes | None]) -> None:
    """Level 1: row by row, all at once, in any order."""
    together = rows(payloads)
    assert together == [rows([payload])[0] for payload in payloads]
    assert together[::-1] == rows(payloads[::-1])


@given(st.lists(TEXTS, min_size=3, max_size=3), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_what_a_csv_writer_wrote_is_read_back(values: list[str], quoting: int) -> None:
    """Whether it quotes everything or only what it must; an empty value without quotes is NULL."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator="\r\n").writerow(values)
    (found,) = rows([out.getvalue().encode()])
    assert found == tuple(value or (None if quoting == csv.QUOTE_MINIMAL else "") for value in values)


def test_names_are_matched_exactly_first_then_ignoring_case() -> None:
    """As in JSON; a name with a dot is a name."""
    reader = CsvReader(("at", "AT", "p.k"))
    assert [reader.index_of(path) for path in (("at",), ("AT",), ("At",), ("p", "k"), ("P", "K"), ("k",))] == [0, 1, 0, 2, 2, None]


def test_huge_payloads_cost_their_length() -> None:
    """Ten million delimiters, quotes or quoted quotes end in a reason or a value, in linear time."""
    size = 10_000_000
    found = rows([b"," * size, b'"' * (size + 1), b'1,2,"' + b'""' * (size // 2) + b'"', b"x" * size + b",,"])
    assert found[:2] == [WRONG_COUNT, NOT_CSV]
    assert len(str(found[2][2])) == size // 2
    assert len(str(found[3][0])) == size
