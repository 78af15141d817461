"""Offsets that are not read: what is left of a range, and where reading goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.skips import Skip, first_read, read_parts, skip_at, spans_within

OFFSETS = st.integers(0, 30)
SPANS = st.lists(st.tuples(OFFSETS, st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=5)


def skipped_offsets(spans: list[tuple[int, int]]) -> set[int]:
    """The offsets of spans, one by one."""
    return {offset for start, end in spans for offset in range(start, end)}


@given(OFFSETS, OFFSETS, SPANS)
def test_of_a_range_everything_is_read_that_no_skip_covers(start: int, length: int, spans: list[tuple[int, int]]) -> None:
    """In rising parts, none empty, however skips overlap or touch; whole spans of other ranges change nothing."""
    end = start + length
    parts = list(read_parts(start, end, spans_within(spans, start, end)))
    offsets = [offset for first, last in parts for offset in range(first, last)]
    assert offsets == [offset for offset in range(start, end) if offset not in skipped_offsets(spans)]
    assert all(first < last for first, last in parts)


@given(OFFSETS, SPANS)
def test_reading_goes_on_behind_skips_that_follow_each_other(position: int, spans: list[tuple[int, int]]) -> None:
    """The first offset from there on that no skip covers."""
    assert first_read(position, spans) == next(offset for offset in range(position, 100) if offset not in skipped_offsets(spans))


def test_an_undone_skip_covers_nothing_but_marks_its_range() -> None:
    """Events may have been written under it: the range that holds its place is compared."""
    undone = Skip("raw", 0, 5, 9, is_undone=True)
    assert skip_at([undone], ("raw", 0), 5) is None
    assert list(read_parts(0, 10, [undone.span])) == [(0, 5), (5, 10)]
    assert [spans_within([undone.span], start, start + 5) for start in (0, 5, 10)] == [(), ((5, 5),), ()]


def test_a_skip_says_what_whose_and_why() -> None:
    """A rebuilt journal knows only the offsets."""
    skip = Skip("raw", 3, 5, 9, "broken", "ann@host", "2024-03-01T00:00:00Z")
    assert skip.describe() == "raw-3@5 and 3 more: broken (ann@host, 2024-03-01T00:00:00Z)"
    assert Skip("raw", 3, 5, 6).describe() == "raw-3@5: why is not known"
