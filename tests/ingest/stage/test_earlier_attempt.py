"""A skip after torn attempts: it takes effect exactly if nothing that they wrote differs from what comes out with it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st
from support.ingest_plans import ingest_plan
from support.oracle import compute_story

from ingest.planned_range import IngestRange
from ingest.skips import Skip
from ingest.stage.earlier_attempt import EarlierAttempt
from ordering.errors import RefusedError
from ordering.model.events import Released
from ordering.model.step import Model
from ordering.policies import Policies
from ordering.protocol.wire import decode_event_headers, encode_event_header_column
from ordering.testing import Record, batch_of

POLICIES = Policies(early_us=None, late_us=8, reorder_us=2)
PLAN = ingest_plan(output_partitions=2)
MODEL = Model(POLICIES, True, 2)
Log = dict[int, list[tuple[int, bytes]]]
"""By output partition: (seq, header) in the order in which they were written."""


class Attempt(NamedTuple):
    """A walk that died: the offset before which it stopped, and how many of its last events were lost in each output partition."""

    stop: int
    lost: tuple[int, int]


ATTEMPTS = st.lists(st.builds(Attempt, st.integers(0, 14), st.tuples(st.integers(0, 3), st.integers(0, 3))), max_size=3)
TIMES = st.lists(st.tuples(st.integers(1_000, 1_020), st.integers(0, 3), st.sampled_from([b"a", b"b", b"c"])), min_size=6, max_size=14)


def rows_of(released: Released) -> list[tuple[int, int, bytes]]:
    """Output partition, seq and header of events."""
    columns = (released.seq, released.system_us, released.event_time_us, released.arrival_us, released.offset, released.flags)
    headers = encode_event_header_column(*columns, released.number).to_pylist()
    return list(zip(released.output_partition.tolist(), released.seq.tolist(), headers, strict=True))


def walk(records: list[Record], cuts: list[int], log: Log, skip: tuple[int, int], until: int) -> None:
    """Walk with the skip in ranges that end at *cuts*, and write; what earlier attempts before *until* wrote is compared."""
    state = MODEL.new_state()
    for start, end in zip([0, *cuts], cuts, strict=False):
        planned = IngestRange(0, 0, "raw", 0, start, end, skips=(skip,), compare_from=skip[0], compare_until=until)
        earlier = EarlierAttempt(
            replace(PLAN, skips=(Skip("raw", 0, *skip),)), planned, {output: dict(written) for output, written in log.items()}
        )
        pieces = [record for record in records if start <= record.offset < end and not skip[0] <= record.offset < skip[1]]
        released = MODEL.step(state, batch_of(pieces, over=True, end_offset=end)).released
        earlier.check_events(released)
        earlier.check_end(state.seq)
        for output, seq, header in rows_of(released):
            log[output].append((seq, header))


def tear(records: list[Record], log: Log, attempt: Attempt, skip: tuple[int, int]) -> None:
    """Write what an attempt leaves that dies; of each output partition a prefix."""
    read = [record for record in records if record.offset < attempt.stop and not skip[0] <= record.offset < skip[1]]
    released = MODEL.step(MODEL.new_state(), batch_of(read, over=True, end_offset=attempt.stop)).released
    written: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for output, seq, header in rows_of(released):
        written[output].append((seq, header))
    for output, rows in written.items():
        log[output] += rows[: max(len(rows) - attempt.lost[output], 0)]


def story_of(records: list[Record], skip: tuple[int, int]) -> dict[int, list[tuple[int, ...]]]:
    """What the oracle tells of a log without the skipped records: offset and times of each event, by output partition."""
    read = [record for record in records if not skip[0] <= record.offset < skip[1]]
    story = compute_story(read, POLICIES, over=True, output_partitions=2)
    return {
        output: [(event.offset, event.system_us, event.event_time_us, event.arrival_us) for event in story.channel(output)]
        for output in range(2)
    }


def decoded(rows: list[tuple[int, bytes]]) -> set[tuple[int, ...]]:
    """Seq, offset and times of written events."""
    if not rows:
        return set()
    table = decode_event_headers([header for _, header in rows])
    return {tuple(int(row[name]) for name in ("seq", "offset", "system_us", "event_time_us", "arrival_us")) for row in table}


# The attempt released one event more, and no number is written twice.
@example([(1_000 + 3 * row, 3, b"a") for row in range(6)], [Attempt(6, (0, 0))], [], 5, 1, [])
@given(TIMES, ATTEMPTS, ATTEMPTS, st.integers(0, 14), st.integers(1, 4), st.lists(st.integers(1, 13), max_size=3))
def test_a_skip_takes_effect_exactly_if_no_earlier_event_differs(
    times: list[tuple[int, int, bytes]], unaware: list[Attempt], aware: list[Attempt], start: int, length: int, cuts: list[int]
) -> None:
    """
    Level 1: attempts that knew nothing of the skip die, then some that know it, wherever; at last one goes to the end.

    Either every number has one event, that of the oracle's story without the skipped records; or one that was written is none of these.
    """
    arrival_us, records = 1_000, []
    for offset, (event_time_us, gained_us, key) in enumerate(times):
        arrival_us += gained_us
        records.append(Record(offset, arrival_us, event_time_us, key))
    end, log = len(records), Log({0: [], 1: []})
    skip = start % end, start % end + length
    until = max([0, *(min(attempt.stop, end) for attempt in (*unaware, *aware))])
    for attempt in unaware:
        tear(records, log, attempt._replace(stop=min(attempt.stop, end)), (0, 0))
    expected = story_of(records, skip)
    numbered = {output: {(seq, *event) for seq, event in enumerate(events)} for output, events in expected.items()}
    is_late = any(decoded(log[output]) - numbered[output] for output in log)
    code = ""
    try:
        if not is_late:
            for attempt in aware:
                tear(records, log, attempt._replace(stop=min(attempt.stop, end)), skip)
        walk(records, sorted({cut for cut in cuts if cut < end} | {end}), log, skip, until)
    except RefusedError as refusal:
        code = refusal.code
    assert code == ("TG-SKIP-PASSED" if is_late else "")
    if not is_late:
        assert {output: decoded(rows) for output, rows in log.items()} == numbered
