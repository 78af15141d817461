"""Where a query with OVER begins to read a log, so that its results come in the order of a run from the beginning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import SECOND_US
from query.config import LogStart
from query.start.settling import is_settled, settle_log

NEEDED_US = 10_000 * SECOND_US
ROSTER = Roster(1, 2, Spread.ALL, True)


def start_of(ctis: Mapping[int, tuple[int, int]], *, parts: Mapping[int, tuple[int, int]] | None = None) -> tuple[LogStart, list[int]]:
    """Settle a log of a record each second, offset 1,000 at X. *ctis*: by offset, the channel and how long before X its c is, seconds."""
    records = {}
    for offset, (number, behind) in ctis.items():
        part, count = (parts or {}).get(offset, (0, 1))
        c = NEEDED_US - behind * SECOND_US
        records[offset] = Cti(number, 0, c, 1, 0, 0, 0, c, ROSTER, Cause.EVENT, part=part, parts=count)
    read_offsets: list[int] = []

    def read(first: int, end: int) -> Iterator[tuple[int, Cti]]:
        read_offsets.extend(range(first, end))
        return ((offset, cti) for offset, cti in sorted(records.items()) if first <= offset < end)

    found = settle_log(NEEDED_US, lambda us: max(1000 + (us - NEEDED_US) // SECOND_US, 0), read, 0, 2)
    return found, read_offsets


@pytest.mark.parametrize(
    ("ctis", "back"),
    [
        ({998: (0, 1), 999: (1, 1)}, 2),
        ({990: (0, 3), 999: (1, 8)}, 16),
        ({998: (0, 5), 999: (1, 5)}, 8),
        # Stale CTIs are the last ones, and those before them lie far back.
        ({700: (0, 20), 710: (1, 20), 998: (0, 9_999), 999: (1, 9_999)}, 512),
        # It is enough if a stale one is above X'.
        ({700: (0, 20), 998: (0, 100), 999: (1, 100)}, 128),
    ],
)
def test_each_channel_has_a_cti_that_settles_it_before_the_first_record_of_x(ctis: Mapping[int, tuple[int, int]], back: int) -> None:
    """X' is the first step back, doubled each time, for which that holds; no record is read twice."""
    found, read_offsets = start_of(ctis)
    assert found == LogStart(NEEDED_US - back * SECOND_US, 1000 - back)
    assert sorted(read_offsets) == list(range(1000 - back, 1000))


@pytest.mark.parametrize("ctis", [{}, {998: (0, 1)}, {998: (0, 1), 999: (1, 5_000)}])
def test_a_log_whose_channels_do_not_settle_is_read_whole(ctis: Mapping[int, tuple[int, int]]) -> None:
    """By the normal rule, which needs no CTI to begin with."""
    assert start_of(ctis)[0] == LogStart(None, 0)


def test_a_cti_in_parts_settles_if_all_of_it_is_there() -> None:
    """Of one whose first part lies before the start, the list is not known."""
    ctis = {997: (0, 1), 999: (0, 1), 998: (1, 1)}
    assert start_of(ctis, parts={997: (0, 2), 999: (1, 2)})[0] == LogStart(NEEDED_US - 4 * SECOND_US, 996)


@pytest.mark.parametrize("newest_first", [False, True])
def test_every_channel_of_the_newest_roster_must_have_settled(newest_first: bool) -> None:
    """One that joined may still say nothing, wherever the newer roster stands."""
    rosters = [ROSTER, Roster(2, 3, Spread.ALL, True)]
    ctis = [(number, Cti(number, 0, 50, 1, 0, 0, 0, 50, roster, Cause.EVENT)) for number, roster in enumerate(rosters)]
    assert is_settled([(number, replace(cti, roster=ROSTER)) for number, cti in ctis], 40, 0, 1)
    assert not is_settled(ctis[:: -1 if newest_first else 1], 40, 0, 1)
