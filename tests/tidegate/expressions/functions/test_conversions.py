"""Conversions of text to datetimes: one grammar of times for event times and for CAST."""

from __future__ import annotations

from itertools import product

import duckdb
import pyarrow as pa
import pytest

from ordering.columns.timestamps import to_ticks
from ordering.ticks import TICK_MIN
from tidegate.expressions.duckdb_pool import run
from tidegate.expressions.functions.conversions import TypedSql, convert
from tidegate.expressions.kinds import Kind


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
