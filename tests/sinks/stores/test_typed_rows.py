"""Results as typed columns: the fast way and the slow way give the same table, and refuse the same rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.stores.base import Refusal, Rows, RowsRefused, find_refusals
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.records import result_columns
from tidegate.records.result_columns import scan_values

COLUMNS = (("n", "bigint"), ("f", "float"), ("t", "nvarchar(max)"), ("at", "datetime"), ("b", "bit"))
_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "t": st.none() | st.text(max_size=8),
        "at": st.none() | st.datetimes().map(lambda at: at.isoformat(timespec="microseconds") + "Z"),
        "b": st.none() | st.booleans(),
    },
)
# Columns that hold the JSON text of their values.
_UNTYPED = (("x", "any"), ("r", "record"), ("l", "array"))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_UNTYPED_MEMBERS = st.fixed_dictionaries({}, optional={name: _JSON for name, _ in _UNTYPED})
# A value of another type, a name in other letters, a name that no column has.
_ODD_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        name: st.none() | st.booleans() | st.integers(-9, 9) | st.just(0.5) | st.just("x") for name in ("n", "f", "t", "b", "N", "z")
    },
)


def rows_of(values: list[bytes]) -> Rows:
    """Return results with these values, numbered from 10 on."""
    place = np.arange(10, 10 + len(values))
    return Rows(place, place, place, pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()))


@pytest.mark.parametrize("native", ["auto", "off"])
@given(
    st.lists(_MEMBERS, max_size=6), st.lists(_UNTYPED_MEMBERS, max_size=6), st.lists(_ODD_MEMBERS, max_size=1), st.booleans(), st.booleans()
)
def test_the_fast_ways_read_what_the_slow_way_reads(
    native: str,
    typed: list[dict[str, object]],
    untyped: list[dict[str, object]],
    odd: list[dict[str, object]],
    is_ascii: bool,
    has_untyped: bool,
) -> None:
    """Whatever results there are, in whatever columns: one table, or they are refused."""
    columns = (*COLUMNS, *_UNTYPED) if has_untyped else COLUMNS
    members = [first | second for first, second in zip_longest(typed, untyped, fillvalue={})] if has_untyped else typed
    values = [json.dumps(each, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass") for each in members + odd]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NATIVE_SWITCH, native)
        try:
            expected = scan_values(values, columns)
        except (pa.ArrowException, ValueError):
            with pytest.raises(RowsRefused):
                make_typed_table(rows_of(values), columns)
        else:
            assert make_typed_table(rows_of(values), columns).equals(expected)


def test_plain_results_are_read_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the slower ways is asked, whether integers stand among floats, or a column has no value at all."""
    for way in ("_parse_json", "scan_values"):
        monkeypatch.setattr(result_columns, way, None)
    values = [b'{"n":1,"f":2,"t":"\\u00e9","at":"2026-11-26T00:00:00.5Z"}', b'{"f":0.30000000000000004,"t":null}']
    first, second = make_typed_table(rows_of(values), COLUMNS).to_pylist()
    assert first == {"n": 1, "f": 2.0, "t": "é", "at": datetime(2026, 11, 26, 0, 0, 0, 500_000, UTC), "b": None}
    assert second == {"n": None, "f": 0.1 + 0.2, "t": None, "at": None, "b": None}


@pytest.mark.parametrize("way", ["auto", "off"])
def test_columns_without_a_type_of_their_own_are_json(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record, an array, and a value of any type keep their JSON text, and are read in C too."""
    monkeypatch.setenv(NATIVE_SWITCH, way)
    if way == "auto":
        monkeypatch.setattr(result_columns, "scan_values", None)
    value = b'{"r":{"a" : [1,2.50,"\\u00e9"]}, "x":7 ,"y":"7\\n","z":null,"t":true}'
    columns = [("r", "record"), *((name, "any") for name in "xyzt")]
    table = make_typed_table(rows_of([value]), columns)
    assert table.to_pylist() == [{"r": '{"a" : [1,2.50,"\\u00e9"]}', "x": "7", "y": '"7\\n"', "z": None, "t": "true"}]


def test_exactly_the_rows_that_do_not_fit_are_refused() -> None:
    """A wrong type, a column too many, a time that is none: each by its position, the others by none."""
    values = [b'{"n":1}', b'{"n":"x"}', b'{"n":2,"new":1}', b'{"at":"yesterday"}', b'{"n":3}']
    with pytest.raises(RowsRefused) as refused:
        make_typed_table(rows_of(values), COLUMNS)
    assert [refusal.position for refusal in refused.value.refusals] == [11, 12, 13]
    assert refused.value.refusals[1].reason == "there is no column new"


@pytest.mark.parametrize(
    "poison",
    [
        b'{"n":10000000000000000000}',
        b'{"n":' + b"9" * 400 + b"}",
        b'{"at":"10000-01-01T00:00:00Z"}',
        b'{"t":"\\ud800"}',
        b'{"r":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"t":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
    ids=lambda value: value[:20].decode(),
)
@pytest.mark.parametrize("more", [(), (("r", "record"),)], ids=["fast", "slow"])
def test_a_value_beyond_all_that_its_column_holds_is_refused_and_no_other(poison: bytes, more: tuple[tuple[str, str], ...]) -> None:
    """What no reader takes, an integer, a time, half a character or a depth, costs its own row."""
    with pytest.raises(RowsRefused) as refused:
        make_typed_table(rows_of([b'{"n":1}', poison, b'{"n":3}']), (*COLUMNS, *more))
    assert [refusal.position for refusal in refused.value.refusals] == [11]


@given(st.sets(st.integers(0, 40)), st.integers(1, 41))
def test_halving_finds_every_row_and_keeps_the_order_of_the_others(bad: set[int], count: int) -> None:
    """Rows that are taken are taken once, in order; the others are returned."""
    taken: list[int] = []

    def attempt(part: Rows) -> str | None:
        if any(place - 10 in bad for place in part.position.tolist()):
            return "no"
        taken.extend(part.position.tolist())
        return None

    found = find_refusals(rows_of([b"{}"] * count), attempt)
    assert found == [Refusal(place, "no") for place in range(10, 10 + count) if place - 10 in bad]
    assert taken == [place for place in range(10, 10 + count) if place - 10 not in bad]
