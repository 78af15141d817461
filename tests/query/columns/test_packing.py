"""The law of packing: what was packed comes back, value by value and with its types, whatever was filtered meanwhile."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.columns.packing import pack_table, read_column, unpack_table
from query.engine.retention import encode_table

INTS = st.one_of(
    st.integers(-5, 5),
    st.integers(10**15, 10**15 + 70_000),
    st.sampled_from([-(2**63), 2**63 - 1, 2**32 - 1, 2**32, 2**16, 2**8]),
    st.none(),
)
TEXTS = st.one_of(st.sampled_from(["", "a", "b", "é", None]), st.text(max_size=3))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table of several pieces."""
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(st.tuples(INTS, st.integers(0, 300), TEXTS, st.binary(max_size=2), st.floats(), st.booleans()), max_size=40))
        columns = list(zip(*rows, strict=True)) or [[]] * 6
        types = (pa.int64(), pa.int64(), pa.string(), pa.binary(), pa.float64(), pa.bool_())
        pieces.append(pa.table({f"c{at}": pa.array(column, kind) for at, (column, kind) in enumerate(zip(columns, types, strict=True))}))
    return pa.concat_tables(pieces)


@given(tables(), st.data())
def test_what_was_packed_comes_back(table: pa.Table, data: st.DataObject) -> None:
    """Also after it was filtered, saved and read, and packed again."""
    small = pack_table(table)
    mask = pa.array(data.draw(st.lists(st.booleans(), min_size=table.num_rows, max_size=table.num_rows)), pa.bool_())
    read = pa.ipc.open_stream(encode_table(small.filter(mask))).read_all()
    for each in (small.filter(mask), read, pack_table(unpack_table(read))):
        assert same(unpack_table(each), table.filter(mask))
    assert all(same(pa.table({name: read_column(small, name)}), table.select([name])) for name in table.column_names)


def same(table: pa.Table, other: pa.Table) -> bool:
    """Tell whether tables have the same columns, types and values, NaN being what it is."""
    return table.schema.equals(other.schema) and str(table.to_pylist()) == str(other.to_pylist())


@pytest.mark.parametrize(
    ("column", "octets"),
    [
        (pa.array([10**15 + at % 200 for at in range(10_000)]), 1),
        (pa.array([10**15 + at for at in range(10_000)]), 2),
        (pa.array([10**15 + at * 1_000 for at in range(10_000)]), 4),
        (pa.array([at * 10**9 for at in range(10_000)]), 8),
        (pa.array([f"device-{at % 100}" for at in range(10_000)]), 1.1),
        (pa.array([f"device-{number}" for number in random.Random(1).choices(range(2_000), k=10_000)]), 5),
    ],
)
def test_how_small_it_gets(column: pa.Array, octets: float) -> None:
    """Bytes a row."""
    assert pack_table(pa.table({"c": column})).nbytes <= (octets + 0.2) * len(column)


def test_texts_that_hardly_come_again_stay_as_they_are() -> None:
    """A dictionary of all texts would save nothing."""
    table = pa.table({"c": [f"order-{at}" for at in range(10_000)]})
    assert pack_table(table).schema == table.schema
    assert unpack_table(table) is table
