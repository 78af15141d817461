"""The law of retention: what was saved comes back, row by row and in order, and a batch writes only what it added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.budgets import budget_of

from ordering.errors import ProtocolError
from query.engine import retention as retention_module
from query.engine.retention import Changes, Retention


def rows_of(values: Sequence[int], column: str = "at") -> pa.Table:
    """A table of one integer column."""
    return pa.table({column: pa.array(values, pa.int64())})


def dropping_below(floor: int) -> Callable[[pa.Table], pa.Table]:
    """What drops the rows below *floor*."""
    return lambda table: table.filter(pc.greater_equal(table["at"], floor))


def kept(retention: Retention, name: str) -> list[int]:
    """The kept rows of a table, oldest first."""
    rows = retention.rows(name)
    return [] if rows is None else rows["at"].to_pylist()


@dataclass
class Store:
    """A key-value store that holds what retentions save."""

    chunks: dict[int, bytes] = field(default_factory=dict)
    written_bytes: int = 0

    def apply(self, changes: Changes) -> None:
        """Delete, then put, as the stateful stage does."""
        for number in changes.delete:
            del self.chunks[number]
        assert not changes.put.keys() & self.chunks.keys()
        self.chunks |= changes.put
        self.written_bytes += sum(map(len, changes.put.values()))


@dataclass(frozen=True)
class Turn:
    """One batch: rows to add to two tables, how far the first is cut off, whether it is rewritten, whether the process dies."""

    first: int
    second: int
    forgotten: int
    rewritten: bool
    restored: bool


TURNS = st.builds(Turn, st.integers(0, 4), st.integers(0, 2), st.integers(0, 60), st.sampled_from([False] * 9 + [True]), st.booleans())


@given(st.lists(TURNS, max_size=60))
def test_whatever_is_added_dropped_and_restored_the_rows_are_those_of_a_list(turns: list[Turn]) -> None:
    """Rows come back in their order; dropped ones come back at most until they are dropped again; the store holds no other chunk."""
    retention, store = Retention(), Store()
    first, second, added, floor = list[int](), list[int](), 0, 0
    for turn in turns:
        fresh = list(range(added, added + turn.first))
        added += turn.first
        retention.add("first", rows_of(fresh))
        retention.add("second", rows_of([added] * turn.second))
        first, second = first + fresh, second + [added] * turn.second
        floor = max(floor, added - turn.forgotten)
        retention.reduce("first", dropping_below(floor))
        if turn.rewritten:
            retention.rewrite(["second"], lambda table: rows_of([value + 1 for value in table["at"].to_pylist()]))
            second = [value + 1 for value in second]
        first = [value for value in first if value >= floor]
        store.apply(retention.save())
        assert [number for number, _ in retention.head()] == sorted(store.chunks)
        if turn.restored:
            retention = Retention.restore(retention.head(), dict(store.chunks))
            dropped = [value for value in kept(retention, "first") if value < floor]
            assert dropped == sorted(set(dropped))
            retention.reduce("first", dropping_below(floor))
        assert kept(retention, "first") == first
        assert kept(retention, "second") == second


def test_chunks_stay_few_and_writing_stays_cheap() -> None:
    """After thousands of batches there are at most seven chunks of each size class, and each row was written a few times."""
    retention, store = Retention(), Store()
    most = 0
    for batch in range(3_000):
        retention.add("rows", rows_of([batch] * 10))
        store.apply(retention.save())
        most = max(most, len(store.chunks))
    assert most <= 7 * 4
    assert kept(retention, "rows") == [batch for batch in range(3_000) for _ in range(10)]
    # One batch is about 350 bytes; were each save to write all, it would be half a gigabyte.
    assert store.written_bytes < 4_000_000


def test_a_sliding_horizon_leaves_no_old_chunks_behind() -> None:
    """Rows that only live for some batches take their chunks with them: what is stored stays small for ever."""
    retention, store = Retention(), Store()
    for batch in range(1_000):
        retention.add("rows", rows_of([batch] * 5))
        retention.reduce("rows", dropping_below(batch - 20))
        store.apply(retention.save())
        assert len(store.chunks) <= 21
    assert sum(map(len, store.chunks.values())) < 30_000


@pytest.mark.parametrize(("is_one_timeline", "remaining"), [(True, []), (False, [1, 2])])
def test_a_piece_goes_whole_only_if_there_is_one_timeline(is_one_timeline: bool, remaining: list[int]) -> None:
    """How far the furthest substream has come says nothing of the rows of others: each of them is asked."""
    retention = Retention()
    retention.add("rows", rows_of([1, 2]).append_column("system_us", pa.array([1, 2])))
    retention.expire("rows", lambda rows: rows, lambda us: (us, us), 10, is_one_timeline=is_one_timeline)
    assert kept(retention, "rows") == remaining


def test_a_batch_without_change_writes_nothing() -> None:
    """Saving twice, or with nothing added, touches no chunk."""
    retention = Retention()
    assert retention.save() == Changes()
    retention.add("rows", rows_of([]))
    assert retention.save() == Changes()
    retention.add("rows", rows_of([1]))
    assert list(retention.save().put) == [0]
    assert retention.save() == Changes()


def test_pieces_may_differ_in_columns() -> None:
    """A column that a piece lacks is null there, through merging and restoring too."""
    retention, store = Retention(), Store()
    for batch in range(9):
        retention.add("rows", rows_of([batch], "at" if batch % 2 else "other"))
        store.apply(retention.save())
    restored = Retention.restore(retention.head(), store.chunks)
    rows = restored.rows("rows")
    assert rows is not None
    assert rows["at"].to_pylist() == [batch if batch % 2 else None for batch in range(9)]
    assert rows["other"].to_pylist() == [None if batch % 2 else batch for batch in range(9)]


@pytest.mark.parametrize(
    "column", [pa.array([b"\x00\xff", b"", None], pa.binary()), pa.array(["é", "", None]), pa.array([True, None, False])]
)
def test_any_column_survives(column: pa.Array) -> None:
    """Chunks carry Arrow columns of any type, nulls included."""
    retention, store = Retention(), Store()
    retention.add("rows", pa.table({"value": column}))
    retention.add("rows", pa.table({"value": column}))
    store.apply(retention.save())
    rows = Retention.restore(retention.head(), store.chunks).rows("rows")
    assert rows is not None
    assert rows["value"].to_pylist() == column.to_pylist() * 2


def test_a_chunk_of_a_newer_version_is_refused() -> None:
    """Set back to an older version, a program does not misread a chunk."""
    retention = Retention()
    retention.add("rows", rows_of([1]))
    (number, octets), *_ = retention.save().put.items()
    with pytest.raises(ProtocolError, match="begins with bytes of no known version") as refusal:
        Retention.restore(retention.head(), {number: b"TGR2" + octets[4:]})
    assert refusal.value.fix == "run the version that saved it"


@given(st.lists(st.lists(st.integers(0, 400), max_size=6), max_size=12), st.integers(200, 2_000))
def test_no_chunk_has_many_bytes(batches: list[list[int]], bytes_max: int) -> None:
    """Whatever a batch adds is saved in chunks that a store can copy, but for single rows that are larger; and comes back."""
    retention, store, sizes = Retention(), Store(), list[int]()
    with budget_of(merged_bytes=bytes_max):
        for batch in batches:
            sizes += batch
            retention.add("rows", pa.table({"value": pa.array([b"x" * size for size in batch], pa.binary())}))
            retention.add("at", rows_of(batch))
            store.apply(retention.save())
            retention = Retention.restore(retention.head(), dict(store.chunks))
            assert all(piece.stored.nbytes <= max(bytes_max, 500) for name in ("rows", "at") for piece in retention.pieces(name))
    assert [len(value) for rows in retention.tables("rows") for value in rows["value"].to_pylist()] == sizes
    assert kept(retention, "at") == sizes


def test_chunks_that_are_too_large_to_merge_are_packed() -> None:
    """They stay for long, so they take less memory, and have the same rows."""
    retention, values = Retention(), list(range(100))
    with budget_of(merged_rows=500), patch.object(retention_module, "PACKED_FROM", 50):
        for _ in range(retention_module.FANOUT):
            retention.add("rows", rows_of(values))
            written = retention.save().put
    assert all(piece.stored.nbytes < 2 * len(values) for piece in retention.pieces("rows"))
    assert kept(retention, "rows") == values * retention_module.FANOUT
    assert len(written) == 1
