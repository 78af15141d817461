"""
Gathering: which of the retained rows a finish reads, and how many at once.

A finish skips pieces of which no row can count. Old rows of a join are looked up by their keys (``can_look_up``); rows that count in the
same way for all results are replaced by sums (``can_summarize``). What is left may be read in portions (:mod:`query.plan.gathered`).

If time jumps and many rows have their last result at different instants, as in sliding windows and joins, a finish goes in steps of time
(:func:`find_step_end`, with OVER :func:`expire_too_many`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.ticks import NEVER
from query.columns.key_hashes import KeyHashes
from query.columns.large_tables import text_bytes
from query.columns.packing import read_column
from query.engine.retention import Piece, Retention, SpanOf
from query.plan.gathered import Gathered, GatheredTable, number_rows
from query.plan.operator import Operator
from query.plan.row_tables import concat_rows
from tidegate.basics.budget import BUDGET

# Larger pieces of which some rows have left a sliding window are split, so that the other rows are summed up only once.
BLOCK_ROWS = 32_768
# Smaller pieces are read whole: an index would cost more than it saves.
INDEXED_FROM = 4_096


def select_pieces(operator: Operator, retention: Retention, names: Sequence[str], from_us: int, to_us: int) -> list[list[Piece]]:
    """Return for each side the pieces that results with ``from_us <= System.Timestamp < to_us`` can need."""
    if not operator.may_have_results(from_us, to_us):
        return [[] for _ in names]
    selected = []
    for side, name in enumerate(names):
        span = partial(operator.span_us, side=side)
        pieces = [piece for piece in retention.pieces(name) if piece.may_count_between(span, from_us, to_us)]
        if operator.can_summarize:
            pieces = list(_replace_by_sums(operator, pieces, span, from_us, to_us))
        selected.append(pieces)
    return selected


def _replace_by_sums(operator: Operator, pieces: Iterable[Piece], span: SpanOf, from_us: int, to_us: int) -> Iterator[Piece]:
    """Yield the pieces, or sums that stand for them; if a part of a large piece counts, it is treated block by block."""
    for piece in pieces:
        if operator.results_depend_alike(piece.ends_us, from_us, to_us):
            yield piece.summary(operator.summarize)
        elif piece.num_rows > BLOCK_ROWS and piece.high_us < from_us:
            blocks = (block for block in piece.blocks(BLOCK_ROWS) if block.may_count_between(span, from_us, to_us))
            yield from _replace_by_sums(operator, blocks, span, from_us, to_us)
        else:
            yield piece


@dataclass(frozen=True, slots=True)
class ExpiringRows:
    """Rows that have their last results between two instants, both included; assumed to be spread evenly over this time."""

    first_us: int
    last_us: int
    rows: int


def expiring_rows(operator: Operator, retention: Retention, names: Sequence[str], ahead_us: int) -> Iterator[ExpiringRows]:
    """Yield an operator's retained rows by the frontier at which it knows their last results: *ahead_us* before these."""
    for side, name in enumerate(names):
        for piece in retention.pieces(name):
            first_us, last_us = piece.last_results_us(partial(operator.span_us, side=side))
            yield ExpiringRows(first_us - ahead_us, last_us - ahead_us, piece.num_rows)


def find_step_end(rows: Iterable[ExpiringRows], from_us: int, to_us: int) -> int:
    """Return the end of the next step of time from *from_us* on: *to_us*, or sooner if too many rows have their last results by then."""
    due = [part for part in rows if from_us <= part.last_us and part.first_us < to_us]
    if sum(part.rows for part in due) <= BUDGET.rows:
        return to_us
    first_us, last_us, count = np.array([(part.first_us, part.last_us, part.rows) for part in due], dtype=np.float64).T

    def expired_until(instant_us: int) -> float:
        return float(np.sum(count * np.clip((instant_us - first_us) / (last_us + 1 - first_us), 0, 1)))

    # Rows that have expired but are still retained do not count. Rows of one instant expire together.
    rows_max = expired_until(from_us) + BUDGET.rows
    low_us, high_us = max(from_us, int(first_us.min())), min(to_us, int(last_us.max()) + 1)
    if expired_until(high_us) <= rows_max:
        return to_us
    while high_us - low_us > 1:
        middle_us = (low_us + high_us) // 2
        low_us, high_us = (middle_us, high_us) if expired_until(middle_us) <= rows_max else (low_us, middle_us)
    return low_us if low_us > from_us else high_us


def expire_too_many(operator: Operator, retention: Retention, names: Sequence[str], ahead_us: int, closing: pa.Table) -> bool:
    """
    Return whether so many rows have their last results in *closing* that it is finished in several steps; never if it is one instant.

    The rows of each substream are counted, but only if those of all could be too many.
    """
    from_us, to_us = closing["from_us"].to_numpy(), closing["to_us"].to_numpy()
    low_us, high_us = int(from_us.min()), int(to_us.max())
    if find_step_end(expiring_rows(operator, retention, names, ahead_us), low_us, high_us) == high_us:
        return False
    sub = closing["sub"].to_numpy()
    # One entry more, for all substreams above the largest in *closing*: nothing of theirs is finished.
    from_of, to_of = (np.full(sub.max() + 2, NEVER, dtype=np.int64) for _ in range(2))
    from_of[sub], to_of[sub] = from_us, to_us
    count = 0
    for side, name in enumerate(names):
        for piece in retention.pieces(name):
            first_us, last_us = piece.last_results_us(partial(operator.span_us, side=side))
            if last_us - ahead_us >= low_us and first_us - ahead_us < high_us:
                system_us, owner = (read_column(piece.stored, column).to_numpy() for column in ("system_us", "sub"))
                leaves_us = np.interp(system_us, piece.ends_us, (first_us, last_us)) - ahead_us
                owner = np.minimum(owner, len(from_of) - 1)
                count += int(np.count_nonzero((from_of[owner] <= leaves_us) & (leaves_us < to_of[owner])))
    return count > BUDGET.rows


def compute_rows(operator: Operator, pieces: Sequence[Sequence[Piece]], closing: pa.Table) -> Iterator[pa.Table]:
    """Yield an operator's results in *closing*, from the pieces of each side, in tables that follow one another."""
    if operator.can_look_up:
        selected = _select_by_keys(operator, pieces, closing)
        yield from operator.slices([None if rows is None else GatheredTable(rows) for rows in selected], closing)
    else:
        yield from operator.slices([Gathered(side) if side else None for side in pieces], closing)


def compute_if_small(operator: Operator, pieces: Sequence[Sequence[Piece]], closing: pa.Table) -> list[pa.Table] | None:
    """Return an operator's results in *closing*, or None if they are so many, or repeat so much text, that they are made in steps."""
    # Results that are as many as their rows, which are in memory, are not too many; of a sliding window there are two for each row.
    rows_max = max(BUDGET.pairs, 2 * sum(piece.num_rows for side in pieces for piece in side))
    tables, rows, size = [], 0, 0
    for table in compute_rows(operator, pieces, closing):
        tables.append(table)
        rows += table.num_rows
        size += int(text_bytes(table).sum())
        if rows > rows_max or size > BUDGET.repeated_bytes:
            return None
    return tables


def _select_by_keys(operator: Operator, pieces: Sequence[Sequence[Piece]], closing: pa.Table) -> list[pa.Table | None]:
    """Return for each of two sides the asking rows, and the old ones with the key of an asking row of the other side."""
    from_us, to_us = int(pc.min(closing["from_us"]).as_py()), int(pc.max(closing["to_us"]).as_py())
    parts: list[dict[Piece, pa.Table]] = []
    for side, of_side in enumerate(pieces):
        # Small pieces, and those with rows that may ask, are read whole.
        near = [piece for piece in of_side if piece.num_rows < INDEXED_FROM or operator.may_ask(piece.ends_us, from_us, to_us, side)]
        parts.append({piece: piece.rows() for piece in near})
    asking = [list(of_side.values()) for of_side in parts]
    for side, of_side in enumerate(pieces):
        far = [piece for piece in of_side if piece not in parts[side]]
        # Keys are hashed only if there is something to look up in: a piece at the head is small.
        wanted = _asked_keys(operator, asking[1 - side], closing, 1 - side) if far else None
        if wanted is None:
            continue
        for piece in far:
            index = piece.index(lambda rows, side=side: KeyHashes.of(operator.lookup_keys(rows, side)))  # type: ignore[misc]
            parts[side][piece] = piece.take_rows(index.matching_rows(wanted)) if index.is_comparable_to(wanted) else piece.rows()
    selected = [[parts[side][piece] for piece in of_side if piece in parts[side]] for side, of_side in enumerate(pieces)]
    return [number_rows(tables) if any(rows.num_rows for rows in tables) else None for tables in selected]


def _asked_keys(operator: Operator, near: Sequence[pa.Table], closing: pa.Table, side: int) -> KeyHashes | None:
    """Return the keys for which rows of a side ask; None if none asks."""
    asking = [rows.filter(pa.array(operator.asking_rows(rows, closing, side))) for rows in near]
    # Without rows there are no kinds of keys to compare, and nothing is looked up.
    return KeyHashes.of(operator.lookup_keys(concat_rows(asking), side)) if any(rows.num_rows for rows in asking) else None
