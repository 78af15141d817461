"""Rows without an order: what is missing, extra or changed, with a key and without, and the digest, against plain Python."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from query.verify.unordered import UnorderedRows

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])
Result = tuple[str | None, int, float | None, int]


@contextmanager
def rows_of(
    computed: Sequence[Result],
    standing: Sequence[Result],
    keeps: Literal["all", "first", "last"] = "all",
    optional: Sequence[int] = (),
    partitions: Sequence[int] = (),
) -> Iterator[UnorderedRows]:
    """Lay rows down, those that stand in another order and in pieces."""
    rows = UnorderedRows("there", () if keeps == "all" else ("k",), keeps)
    try:
        shuffled = random.Random(1).sample(list(standing), len(standing))
        for start in range(0, len(shuffled), 7):
            rows.add_standing(table(shuffled[start : start + 7]))
        for seq, row in enumerate(computed):
            partition = partitions[seq] if partitions else 0
            rows.add_computed(table([row]), partition, np.array([seq]), np.array([row[3]]), pa.array([b"key"]), np.array([seq in optional]))
        yield rows
    finally:
        rows.close()


def table(rows: Sequence[Result]) -> pa.Table:
    """Return rows as columns."""
    return pa.table([pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA)


def told(rows: UnorderedRows) -> list[tuple[str, int | None, int | None]]:
    """Return kind of each difference, the n of the row that stands and of the one that should."""
    _, differences = rows.differences()
    values = [[None if row is None else json.loads(row.value or b"")["n"] for row in (each.stands, each.should)] for each in differences]
    return [(each.kind, *value) for each, value in zip(differences, values, strict=True)]


ROWS: list[Result] = [('Zürich\n"' if n % 3 else None, n // 2, n / 7, 1_000_001 * n) for n in range(40)]


def test_rows_in_any_order_are_equal_and_have_the_digest_of_their_sorted_lines() -> None:
    """The line of each row was written by hand; equal rows count as often as they are there."""
    twice = [*ROWS, ROWS[3], ("x", 1, -0.0, 0)]
    with rows_of(twice, twice) as rows:
        assert rows.differences() == (0, [])
        lines = [
            f'{{"k":{json.dumps(k, ensure_ascii=False)},"n":{n},"v":{v!r},"at":"1970-01-01T00:00:{at / 1e6:09.6f}Z"}}\n'
            for k, n, v, at in twice
        ]
        assert rows.sha256() == hashlib.sha256("".join(sorted(lines, key=str.encode)).encode()).digest()


def test_a_changed_value_a_deleted_row_and_a_strange_one_are_named() -> None:
    """A row is changed if most of its values are there; the result that should stand is named with its number and key."""
    standing = [*ROWS[:10], (*ROWS[10][:2], 99.0, ROWS[10][3]), *ROWS[11:20], *ROWS[21:], ("stranger", -1, None, 7)]
    with rows_of(ROWS, standing) as rows:
        count, differences = rows.differences()
        assert count == 2
        assert [(each.kind, each.should and each.should.seq) for each in differences] == [("changed", 10), ("missing", 20), ("extra", None)]
        assert differences[1].should is not None
        assert differences[1].should.key == b"key"
        assert json.loads(differences[0].stands.value or b"")["v"] == 99.0  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(20))
def test_without_a_key_each_row_counts(seed: int) -> None:
    """Against counters: drawn rows are left out, repeated and changed."""
    dice = random.Random(seed)
    computed: list[Result] = [(None, dice.randrange(4), None, 0) for _ in range(30)]
    standing = [dice.choice([row, row, row, (None, 9, None, 0)]) for row in computed if dice.random() < 0.9]
    with rows_of(computed, standing) as rows:
        count, _ = rows.differences()
    missing, extra = Counter(computed) - Counter(standing), Counter(standing) - Counter(computed)
    assert count == max(missing.total(), extra.total())


def test_upsert_keeps_the_last_result_of_a_key_and_insert_the_first() -> None:
    """A row with another result of its key is changed, also with one that was right once; a key without a row is missing."""
    computed: list[Result] = [("a", 0, None, 0), ("b", 1, None, 0), ("a", 2, None, 0), ("c", 3, None, 0), ("b", 4, None, 0)]
    last, first = [computed[2], computed[3], computed[4]], [computed[0], computed[1], computed[3]]
    with rows_of(computed, last, "last") as rows:
        assert told(rows) == []
    with rows_of(computed, first, "first") as rows:
        assert told(rows) == []
    with rows_of(computed, [computed[0], computed[4], ("d", 9, None, 0)], "last") as rows:
        assert told(rows) == [("changed", 0, 2), ("missing", None, 3), ("extra", 9, None)]
    with rows_of(computed, [*first, computed[3]], "first") as rows:
        assert told(rows) == [("changed", 3, 3)]


def test_of_two_partitions_either_may_have_written_last() -> None:
    """Results of different partitions have no order among each other, but an earlier one of the same partition is wrong."""
    computed: list[Result] = [("a", 0, None, 0), ("a", 1, None, 0), ("a", 2, None, 0)]
    for standing, is_right in ((1, True), (2, True), (0, False)):
        with rows_of(computed, [computed[standing]], "last", partitions=[0, 0, 1]) as rows:
            assert (told(rows) == []) == is_right


def test_a_result_that_may_have_been_refused_may_stand_or_not() -> None:
    """Without a key, and with one: then the row may also be the result before it."""
    with rows_of(ROWS, ROWS[:-1], optional=[39]) as rows:
        assert told(rows) == []
    with rows_of(ROWS, ROWS[:-2], optional=[39]) as rows:
        assert told(rows) == [("missing", None, 19)]
    computed: list[Result] = [("a", 0, None, 0), ("a", 1, None, 0), ("b", 2, None, 0)]
    for standing, is_right in (([0], True), ([1], True), ([0, 2], True), ([], False)):
        with rows_of(computed, [computed[place] for place in standing], "last", optional=[1, 2]) as rows:
            assert (told(rows) == []) == is_right


def test_rows_of_others_are_passed_over_where_they_may_be() -> None:
    """Missing rows are found all the same."""
    with rows_of(ROWS, [*ROWS[1:], ("stranger", 0, None, 0)]) as rows:
        count, differences = rows.differences(is_shared=True)
        assert (count, [each.kind for each in differences]) == (1, ["missing"])
