"""The law of cutting: everything is read, in batches that are not too large, and logs keep pace with each other in time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from query.stage.batch_cuts import FULL, BatchCutter

LOGS = st.lists(st.lists(st.integers(0, 10**6), max_size=60), min_size=1, max_size=4)
"""The stamps of each log's records, milliseconds."""


class Topic:
    """Logs as brokers know them: the first record of each that has a stamp or a later one."""

    def __init__(self, stamps: Sequence[Sequence[int]]) -> None:
        self.stamps = stamps
        self._risen = [list(accumulate(log, max)) for log in stamps]
        self.asked = 0

    def offsets_at(self, ms: int) -> dict[int, int]:
        """Look them up."""
        self.asked += 1
        found = {log: bisect_left(risen, ms) for log, risen in enumerate(self._risen)}
        return {log: at for log, at in found.items() if at < len(self.stamps[log])}

    def batches(self, most: int) -> list[dict[int, int]]:
        """Read to the end; return where each batch began, and the end."""
        cutter, every = BatchCutter(self.offsets_at), [dict.fromkeys(range(len(self.stamps)), 0)]
        while behind := {log: len(stamps) for log, stamps in enumerate(self.stamps) if every[-1][log] < len(stamps)}:
            every.append({**every[-1], **cutter.cut(every[-1], behind, most)})
        return every


@given(LOGS, st.integers(1, 50))
@example([[5] * 60, [1, 9]], 10)
def test_batches_lead_to_the_end_and_are_not_too_large(logs: list[list[int]], most: int) -> None:
    """Whatever the stamps are, each batch reads something, none goes back, and none has more records than it may, or one of each log."""
    every = Topic(logs).batches(most)
    for before, after in pairwise(every):
        sizes = [after[log] - before[log] for log in before]
        assert min(sizes) >= 0
        assert 0 < sum(sizes) <= max(most, len(logs))
    assert every[-1] == {log: len(stamps) for log, stamps in enumerate(logs)}


@given(LOGS, st.integers(1, 50))
def test_no_log_is_read_beyond_what_another_has_left(logs: list[list[int]], most: int) -> None:
    """Where stamps rise along logs and no two are the same, nothing that is left is older than what was read; batches are full."""
    numbers = iter(sorted({ms for log in logs for ms in log}))
    owners = [number for number, log in enumerate(logs) for _ in log]
    rising: list[list[int]] = [[] for _ in logs]
    for ms, owner in zip(numbers, sorted(owners, key=lambda one: hash((one, most))), strict=False):
        rising[owner].append(ms)
    every = Topic(rising).batches(most)
    for at, (before, after) in enumerate(pairwise(every), start=2):
        read = [ms for log, stamps in enumerate(rising) for ms in stamps[before[log] : after[log]]]
        left = [ms for log, stamps in enumerate(rising) for ms in stamps[after[log] :]]
        assert not left or max(read) < min(left)
        assert at == len(every) or len(read) >= int(FULL * most)


def test_brokers_are_asked_a_few_times_a_batch() -> None:
    """A hundred batches that are alike: each but the first is found within some ten looks, among milliseconds of four months."""
    topic = Topic([range(0, 10**10, 10**5), range(7, 10**10, 10**6)])
    first = Topic(topic.stamps)
    BatchCutter(first.offsets_at).cut({0: 0, 1: 0}, {0: 10**5, 1: 10**4}, 1_100)
    every = topic.batches(1_100)
    assert first.asked < 40
    assert topic.asked - first.asked < 12 * len(every)
    assert len(every) < 10**5 * 1.1 / (FULL * 1_100) + 2
