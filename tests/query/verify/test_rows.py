"""Digests of result rows, and what a difference between two sequences of rows is called."""

from __future__ import annotations

import hashlib
import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from ordering.protocol.wire import encode_event_header_column
from query.verify.rows import ResultRow, RowDigest, first_difference, kind_of_difference, row_at
from tidegate.ordered_topic.events import OrderedEvents


def columns(rows: list[tuple[int, bytes | None, bytes | None]]) -> OrderedEvents:
    """Return rows (s, key, value), numbered from 0."""
    seq, system_us = np.arange(len(rows)), np.array([us for us, _, _ in rows], dtype=np.int64)
    header = encode_event_header_column(seq, system_us, system_us, system_us, seq, np.zeros(len(rows), dtype=np.uint16), 0)
    key, value = (pa.array([row[place] for row in rows], pa.binary()) for place in (1, 2))
    return OrderedEvents(seq, np.zeros(len(rows), dtype=np.int64), seq, system_us, system_us // 1000, header, key, value)


ROWS = [(1_000 * number, (b"k%d" % number, b"", None)[number % 3], (b"v" * number, None)[number % 7 == 6]) for number in range(50)]


def test_the_digest_is_that_of_the_bytes_one_row_after_the_other() -> None:
    """Computed by hand; null and empty differ; wherever the columns are cut."""
    expected = hashlib.sha256()
    for seq, (system_us, key, value) in enumerate(ROWS):
        expected.update(struct.pack("<qq", seq, system_us))
        for octets in (key, value):
            expected.update(struct.pack("<i", -1 if octets is None else len(octets)) + (octets or b""))
    whole, dice = columns(ROWS), random.Random(1)
    for _ in range(20):
        digest, cuts = RowDigest(), sorted(dice.sample(range(1, 50), 5))
        for start, end in zip([0, *cuts], [*cuts, 50], strict=True):
            digest.add(whole.slice(start, end))
        assert digest.sha256 == expected.digest()
        assert (digest.count, digest.least_us, digest.largest_us) == (50, 0, 49_000)


@pytest.mark.parametrize("place", [0, 1, 24, 48, 49])
def test_the_first_row_that_differs_is_found(place: int) -> None:
    """In key, in value, in time; equal columns have none."""
    assert first_difference(columns(ROWS), columns(ROWS)) is None
    for changed in ((ROWS[place][0] + 1, *ROWS[place][1:]), (ROWS[place][0], b"other", ROWS[place][2]), (*ROWS[place][:2], b"other")):
        rows = [*ROWS[:place], changed, *ROWS[place + 1 :]]
        assert first_difference(columns(ROWS), columns(rows)) == place


@pytest.mark.parametrize(
    ("stands", "should", "kind"),
    [
        ("abc", "xbc", "changed"),
        ("bcd", "abcd", "missing"),
        ("xabc", "abc", "extra"),
        ("bac", "abc", "moved"),
        ("abc", "abc", "header"),
        ("", "a", "missing"),
        ("a", "", "extra"),
    ],
)
def test_a_difference_is_called_what_it_is(stands: str, should: str, kind: str) -> None:
    """Rows from the first difference on; those after it tell what happened."""
    sides = [[ResultRow(seq, 1, b"k", letter.encode()) for seq, letter in enumerate(letters)] for letters in (stands, should)]
    assert kind_of_difference(*sides) == kind


def test_a_row_tells_where_it_stands() -> None:
    """By topic, partition and offset; a computed row stands nowhere."""
    assert row_at(columns(ROWS), 3, "rides", 1) == ResultRow(3, 3_000, b"k3", b"vvv", "rides-1@3")
    assert row_at(columns(ROWS), 3).place == ""
