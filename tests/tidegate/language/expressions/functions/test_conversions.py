"""Conversions of text: one grammar of times for event times and for CAST, and the texts that are numbers."""

from __future__ import annotations

import re
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from support.repository import ROOT

from ordering.columns.timestamps import to_ticks
from ordering.ticks import TICK_MIN
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.functions.conversions import TypedSql, convert
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Cast, Field
from tidegate.language.expressions.variant import Variant


def test_cast_and_event_times_read_the_same_texts() -> None:
    """All that these parts can be joined to, days that are none and letters of either size; only CAST takes spaces around."""
    dates = ["2001-02-03", "2000-02-29", "2001-02-29", "1970-01-01", "9999-12-31"]
    times = [
        "",
        "04:05",
        "04:05:06",
        "04:05:06.5",
        "04:05:06.123456789",
        "04:05:06.1234567890",
        "04:05:60",
        "24:00",
        "23:59:59.9999999",
        "04",
    ]
    zones = ["", "Z", "z", "y", "+01:00", "-0130", "+01", "+24:00", "-23:59", "+01:60", "+1", "+01:00:00"]
    joined = {"".join(parts) for parts in product(dates, ["T", " ", "t", "X", ""], times, zones)}
    texts = sorted(text for text in joined if not text.endswith(" "))
    ticks, valid = to_ticks(pa.array(texts), "iso")
    expected = [tick if is_valid else None for tick, is_valid in zip(ticks.tolist(), valid.tolist(), strict=True)]
    assert sum(valid.tolist()) > 300
    sql = convert(TypedSql("v", Kind.NVARCHAR), Kind.DATETIME, lenient=True)
    found = run(f"SELECT {sql} AS v FROM input", input=pa.table({"v": texts}))["v"].to_pylist()
    # Before 1970 there are datetimes, but no event times.
    assert [None if us is not None and us < TICK_MIN else us for us in found] == expected


@pytest.mark.parametrize("text", ["9999-12-31T23:00:00-02:00", "0001-01-01T00:00:00+02:00"])
def test_a_zone_that_leads_out_of_the_years_is_no_datetime(text: str) -> None:
    """It was written as a number of microseconds, or in the year 0."""
    for lenient in (True, False):
        sql = f"SELECT {convert(TypedSql('v', Kind.NVARCHAR), Kind.DATETIME, lenient=lenient)} AS v FROM input"
        if lenient:
            assert run(sql, input=pa.table({"v": [text]}))["v"].to_pylist() == [None]
        else:
            with pytest.raises(duckdb.ConversionException):
                run(sql, input=pa.table({"v": [text]}))


def rows_of_the_manual() -> list[tuple[str, str, str, str]]:
    """Each text of the table in docs/queries/expressions.md, and what it says of bigint, float and bit."""
    section = (ROOT / "docs" / "queries" / "expressions.md").read_text("utf-8").partition("### Numbers in texts")[2].partition("\n#")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `'")]
    return [(text, *said) for first, *said in cells for text in re.findall(r"`'([^']*)'`", first)]


@pytest.mark.parametrize(("text", "bigint", "float_", "bit"), rows_of_the_manual())
def test_the_manual_says_which_texts_are_numbers(text: str, bigint: str, float_: str, bit: str) -> None:
    """Yes: it is read as the number that Python reads; no: CAST fails and TRY_CAST is NULL; else the value itself."""
    column, leaf = {Field(("x",)): Variant.of(1, {Kind.NVARCHAR: pa.array([text])})}, Field(("x",))
    for kind, said in ((Kind.BIGINT, bigint), (Kind.FLOAT, float_), (Kind.BIT, bit)):
        (value,), failures = evaluate([Cast(leaf, kind)], column, 1)
        (tried,), no_failures = evaluate([Cast(leaf, kind, lenient=True)], column, 1)
        read = value.of_kind(kind).to_pylist()[0]
        assert not no_failures
        assert tried.of_kind(kind).to_pylist()[0] == read
        if said in ("no", "NULL"):
            assert (bool(failures), read) == (said == "no", None), f"{text} as {kind}"
        else:
            expected = text.strip().lower() in ("1", "true") if kind is Kind.BIT else float(text if said == "yes" else said)
            assert (failures, read) == ([], expected), f"{text} as {kind}"


def test_the_manual_has_the_texts_that_are_asked_for() -> None:
    """The table is read whole."""
    texts = {row[0] for row in rows_of_the_manual()}
    assert {"5", " 5 ", "5.", "1e3", "0x10", "+5", "1_000", "inf", "NaN", "٥", ""} <= texts
