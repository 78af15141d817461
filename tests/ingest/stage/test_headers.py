"""Kept headers in the stage: they go with their events through judging, holding, saving and releasing, and change nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from support.ingest_plans import RAW, ingest_plan, input_settings

from ingest.config import IngestPlan
from ingest.planned_range import RangeMarks
from ingest.replay.walk import ReplayingWalk
from ordering.columns.framed_payloads import Headers, frame_payload
from ordering.ticks import SECOND_US
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.platform.checkpoint.spilling import spill
from tidegate.platform.kafka.records import Records

START_US = 10**15
SETTINGS = {"over": "k", "late": "20s", "reorder": "3s", "headers": "h, other"}
PLAIN = {name: value for name, value in SETTINGS.items() if name != "headers"}


class Drawn(NamedTuple):
    """A raw record: how late it arrives after the one before, how much earlier it happened, its substream, its headers."""

    after_ms: int
    lateness_ms: int
    key: str
    headers: Headers
    is_readable: bool


RECORDS = st.lists(
    st.builds(
        Drawn,
        st.integers(0, 2_000),
        st.integers(-1_000, 30_000),
        st.sampled_from("ab"),
        st.lists(st.tuples(st.sampled_from(["h", "other"]), st.binary(max_size=9)), max_size=2),
        st.booleans() | st.just(True),
    ),
    max_size=30,
)

Story = tuple[list[tuple[object, ...]], Counter[str]]


def judged(plan: IngestPlan, drawn: list[Drawn], cuts: list[int], *, is_framed: bool) -> Story:
    """Return the events released of records that come in pieces, the state being saved and restored after each; and what is unusable."""
    walk, events, unusable = ReplayingWalk(plan, RAW, ()), [], Counter[str]()
    arrivals_ms = np.cumsum([START_US // 1_000, *(record.after_ms for record in drawn)])[1:]
    saved: dict[int, bytes] = {}
    for start, end in pairwise(sorted({0, len(drawn), *(cut for cut in cuts if cut < len(drawn))})):
        rows = range(start, end)
        values = [
            b'{"k":"%b","t":%d,"n":%d}' % (drawn[row].key.encode(), (int(arrivals_ms[row]) - drawn[row].lateness_ms) * 1_000, row)
            if drawn[row].is_readable
            else b"broken"
            for row in rows
        ]
        if is_framed:
            values = [frame_payload(drawn[row].headers, value) or b"" for row, value in zip(rows, values, strict=True)]
        columns = pa.nulls(len(rows), pa.binary()), pa.array(values, pa.binary())
        walk.judge(*RAW, Records(np.array(rows), arrivals_ms[start:end], *columns, is_framed=is_framed), RangeMarks((), ()))
        events += _events(walk)
        delta = walk._state.save()
        spill(walk._state, 0)
        for number in delta.delete:
            saved.pop(number)
        saved.update(delta.put)
        unusable += walk.unusable
        walk = ReplayingWalk(plan, RAW, (), plan.model(0).restore(delta.head, saved))
    walk._step(plan.model(0).time_only_batch(len(drawn), finish=True))
    return [*events, *_events(walk)], unusable


def _events(walk: ReplayingWalk) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for _, released in walk._pop_steps(0):
        numbers = (released.output_partition, released.seq, released.system_us, released.arrival_us, released.offset, released.flags)
        payloads = (column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in (released.key, released.value))
        found += zip(*(column.tolist() for column in numbers), *payloads, strict=True)
    return found


@given(RECORDS, st.lists(st.integers(0, 30), max_size=4))
def test_events_with_headers_are_those_without_and_each_has_its_own(drawn: list[Drawn], cuts: list[int]) -> None:
    """Level 1: whatever pieces records come in, and however long events are held, saved and restored: time and order follow payloads."""
    framed, plain = (ingest_plan(settings=input_settings(**settings), output_partitions=2) for settings in (SETTINGS, PLAIN))
    events, unusable = judged(framed, drawn, cuts, is_framed=True)
    bare, unusable_bare = judged(plain, drawn, [], is_framed=False)
    offsets = [offset for _, _, _, _, offset, *_ in bare]
    assert events == [(*event[:-1], frame_payload(drawn[offset].headers, event[-1])) for event, offset in zip(bare, offsets, strict=True)]
    assert unusable == unusable_bare


def test_headers_count_for_the_size_of_an_event() -> None:
    """A hostile one is a dead letter like a large payload, and holds no memory; its arrival still advances time."""
    plan = ingest_plan(settings=input_settings(headers="h"), record_bytes_max=1_000)
    walk = ReplayingWalk(plan, RAW, ())
    payload = b'{"t":%d}' % START_US
    values = [frame_payload([("h", b"x" * size)], payload) for size in (900, 1_000)]
    stamps = np.full(2, START_US // 1_000)
    walk.judge(*RAW, Records(np.arange(2), stamps, pa.nulls(2, pa.binary()), pa.array(values), is_framed=True), RangeMarks((), ()))
    assert walk.unusable == {IngestReason.OVERSIZED: 1}
    walk._step(plan.model(0).time_only_batch(2, finish=True))
    assert [event[-1] for event in _events(walk)] == [values[0]]
    assert walk._state.arrival_us >= START_US - SECOND_US
