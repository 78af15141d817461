"""Level 1: an input of arrays is the input of their elements, whatever the cuts, with and without the compiled part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ingest_plans import RAW, ingest_plan, input_settings

from ingest.config import IngestPlan
from ingest.planned_range import IngestRange, RangeMarks
from ingest.replay.walk import ReplayingWalk
from ingest.stage.range_walk import RangeWalk
from ordering.columns.framed_payloads import frame_payload
from ordering.protocol.elements import ELEMENTS_MAX, OF_ELEMENTS
from ordering.ticks import SECOND_US
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.writer import GaplessProducer
from tidegate.records.fields import FieldReader
from tidegate.records.payloads.json_elements import split_elements

BASE_MS = 1_000_000_000
Letter = tuple[int, IngestReason, bytes | None]
Event = tuple[Any, ...]


@dataclass
class Raw:
    """A raw record, and the events that are in it: the bytes of each, None where an array has none."""

    value: bytes | None
    elements: list[bytes | None]
    stamp_ms: int


class Walk(ReplayingWalk):
    """A walk that reads the records that it is given."""

    def __init__(self, plan: IngestPlan, facts: Sequence[Any] = ()) -> None:
        self.letters: list[Letter] = []
        super().__init__(plan, RAW, facts)

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        self.letters.append((int(records.offset[row]), reason, records.payload(row)))

    def events(self) -> list[Event]:  # type: ignore[override]
        """Every event released so far, in order."""
        columns = [
            (*(getattr(step, name).tolist() for name in ("offset", "seq", "system_us", "event_time_us", "arrival_us", "flags")), step)
            for step in self._steps
        ]
        return [
            (*row, None if step.key[at] is None else bytes(_as_py(step.key[at])), bytes(_as_py(step.value[at])))
            for *numbers, step in columns
            for at, row in enumerate(zip(*numbers, strict=True))
        ]


def _as_py(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def records_of(rows: Sequence[tuple[int, int, bytes | None]]) -> Records:
    """Records by offset, timestamp and value; each has a key of its own offset."""
    offsets, stamps, values = (list(column) for column in zip(*rows, strict=True))
    keys = pa.array([b"key%d" % stamp for stamp in stamps], pa.binary())
    return Records(np.array(offsets), np.array(stamps), keys, pa.array(values, pa.binary()))


def plan_of(over: bool, **more: str) -> IngestPlan:
    """A plan with substreams or not."""
    return ingest_plan(settings=input_settings(late="20s", reorder="3s", early="off", **({"over": "k"} if over else {}), **more))


EVENTS = st.builds(
    lambda at, key, extra: json.dumps({"t": at, "k": key, **extra}).encode(),
    st.integers(999_980, 1_000_030),
    st.sampled_from(["x", "y", 5, 5.0, None]),
    st.sampled_from([{}, {"s": "],[{"}, {"s": '"\\'}, {"n": [[1], {"a": [2]}]}]),
)
ELEMENTS = EVENTS | st.sampled_from(
    [b"5", b"null", b'"x"', b"[]", b'[{"t":1000000}]', b'{"k":1}', b'{"t":1000005,"k":NaN}', b'{"t":"soon"}']
)
SPACES = st.sampled_from([b"", b" ", b"\n\t "])


@st.composite
def raws(draw: st.DrawFn) -> list[Raw]:
    """Draw a log of arrays, of single events, and of what is neither."""
    found = []
    for number in range(draw(st.integers(1, 7))):
        stamp_ms = BASE_MS + 1000 * number + draw(st.integers(0, 3000))
        kind = draw(st.sampled_from(["array"] * 5 + ["event", "broken", "null", "scalar"]))
        if kind == "array":
            elements = draw(st.lists(ELEMENTS, max_size=4))
            spaced = [draw(SPACES) + element + draw(SPACES) for element in elements]
            comma = b"," if elements and draw(st.booleans()) and draw(st.booleans()) else b""
            value = draw(SPACES) + b"[" + b",".join(spaced) + comma + draw(SPACES) + b"]" + draw(SPACES)
            found.append(Raw(value, list(elements) or [None], stamp_ms))
            continue
        value = {
            "event": draw(EVENTS),
            "broken": draw(st.sampled_from([b'[{"t":1000000}', b"\xff", b'[{"t":1}}]', b""])),
            "scalar": b"7",
        }.get(kind)
        found.append(Raw(value, [value], stamp_ms))
    return found


def walk(plan: IngestPlan, rows: Sequence[tuple[int, int, bytes | None]], cuts: Sequence[int], end: int) -> Walk:
    """Walk records in pieces of these sizes, one after the other, and release what is held at the end."""
    walked, at = Walk(plan), 0
    while at < len(rows):
        size = cuts[at % len(cuts)]
        walked.judge(*RAW, records_of(rows[at : at + size]), walked._marks)
        at += size
    walked._step(walked._model.time_only_batch(walked._places.place_of(end), finish=True))
    return walked


@given(raws(), st.booleans(), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sampled_from(["auto", "off"]))
def test_arrays_are_the_input_of_their_elements(log: list[Raw], over: bool, cuts: list[int], native: str) -> None:
    """Law, level 1: the same events with the same numbers, the same dead letters by (offset, index), whatever the cuts."""
    rows = [(offset, raw.stamp_ms, raw.value) for offset, raw in enumerate(log, start=3)]
    alone = [
        (OF_ELEMENTS.place_of(offset, index), raw.stamp_ms, element)
        for offset, raw in enumerate(log, start=3)
        for index, element in enumerate(raw.elements)
    ]
    empty = {OF_ELEMENTS.place_of(offset) for offset, raw in enumerate(log, start=3) if raw.elements == [None] and raw.value is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NATIVE_SWITCH, native)
        found = walk(plan_of(over, explode="array"), rows, cuts, 3 + len(log))
        expected = walk(plan_of(over), alone, [1], OF_ELEMENTS.place_of(3 + len(log)))
    assert found.events() == expected.events()
    letters = [letter for letter in expected.letters if letter[0] not in empty]
    # A value that is JSON and no object has no fields elsewhere; here it is no element.
    objects = [(place, IngestReason.MALFORMED if _is_no_object(value) else reason, value) for place, reason, value in letters]
    assert found.letters == objects
    totals = found._state.totals
    assert totals.get("empty_records", 0) == len(empty)
    assert totals.get("events_in", 0) == len(alone) - len(empty)
    assert totals.get("unreadable", 0) == len(letters)


def _is_no_object(value: bytes | None) -> bool:
    return value is not None and not value.strip().startswith(b"{")


def test_an_element_that_is_no_object_is_a_dead_letter_where_time_comes_from_the_broker_too() -> None:
    """Without TIMESTAMP BY a number would be an event by itself."""
    plan = ingest_plan(settings=type(plan_of(False).settings).model_validate({"__name__": "raw", "explode": "array"}))
    walked = walk(plan, [(0, BASE_MS, b'[{"a":1},7,{"a":2}]'), (1, BASE_MS + 1, b"[]"), (2, BASE_MS + 2, b"8")], [3], 3)
    assert [(place, value) for place, *_, value in walked.events()] == [(0, b'{"a":1}'), (2, b'{"a":2}')]
    assert walked.letters == [(1, IngestReason.MALFORMED, b"7"), (OF_ELEMENTS.place_of(2), IngestReason.MALFORMED, b"8")]


def test_an_empty_array_advances_time() -> None:
    """Its arrival counts as every record's does: what waits is released."""
    held = b'[{"t":1000000,"k":"x"}]'
    walked = Walk(plan_of(False, explode="array"))
    walked.judge(*RAW, records_of([(0, BASE_MS, held)]), walked._marks)
    assert walked.events() == []
    walked.judge(*RAW, records_of([(1, BASE_MS + 60_000, b"[]")]), walked._marks)
    assert [value for *_, value in walked.events()] == [b'{"t":1000000,"k":"x"}']


def test_an_estimate_between_records_counts_before_the_first_element_of_its_record() -> None:
    """Marks of the journal have offsets; within an array nothing changes."""
    log = [(0, BASE_MS, b'[{"t":1000000},{"t":1000001}]'), (1, BASE_MS + 1000, b'[{"t":1000000},{"t":1000030}]')]
    told = []
    for cuts in ([1], [2]):
        walked = Walk(plan_of(False, explode="array"))
        walked._marks = RangeMarks(((1, (BASE_MS + 500_000) * 1000),), ()).at(OF_ELEMENTS)
        for start in range(0, 2, cuts[0]):
            walked.judge(*RAW, records_of(log[start : start + cuts[0]]), walked._marks)
        told.append(walked.events())
        assert walked._state.arrival_us == (BASE_MS + 500_000) * 1000
    assert told[0] == told[1]
    assert [place for place, *_ in told[0]][:2] == [0, 1]


def test_kept_headers_stand_before_each_element() -> None:
    """Of an input with headers, each event has those of its record."""
    plan = plan_of(False, explode="array")
    framed = pa.array(
        [frame_payload([("tenant", b"a")], b'[{"t":1000000}, {"t":1000001}]'), frame_payload([], b'{"t":1000002}')], pa.binary()
    )
    records = Records(np.array([0, 1]), np.array([BASE_MS, BASE_MS]), pa.nulls(2, pa.binary()), framed, is_framed=True)
    walked = Walk(plan)
    walked.judge(*RAW, records, walked._marks)
    walked._step(walked._model.time_only_batch(OF_ELEMENTS.place_of(2), finish=True))
    assert [value for *_, value in walked.events()] == [
        frame_payload([("tenant", b"a")], b'{"t":1000000}'),
        frame_payload([("tenant", b"a")], b'{"t":1000001}'),
        frame_payload([], b'{"t":1000002}'),
    ]


def test_a_range_ends_and_its_ctis_stand_at_offsets_of_records() -> None:
    """The planner, the journal and whoever resumes count records."""
    plan = ingest_plan(settings=input_settings(late="5s", explode="array", cti_every_events="1"))
    model = plan.model(0)
    state = model.new_state()
    producer = GaplessProducer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        walked = RangeWalk(plan, model, state, FieldReader.of(plan.settings, plan.payloads), producer)
        walked._writer = cast(Any, type("Nowhere", (), {"write_events": lambda *_: None})())
        walked.run(IngestRange(0, 0, "raw", 0, 7, 7, planned_ms=10**12))
        walked.judge(*RAW, records_of([(7, BASE_MS, b'[{"t":1000000},{"t":1000001},{"t":1000002}]')]), RangeMarks((), ()))
        ctis = walked.pop_ctis(is_last=False)
        assert [cti.next_offset for cti in ctis] == [7] * len(ctis) != []
        report = walked.run(IngestRange(0, 0, "raw", 0, 8, 8, planned_ms=10**12))
    finally:
        producer.discard()
    assert (report.next_offset, state.next_offset) == (8, OF_ELEMENTS.place_of(8))


@pytest.mark.parametrize("native", ["auto", "off"])
def test_elements_keep_their_bytes(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces around an element are not its own, those in it are; what is no JSON array stays whole."""
    monkeypatch.setenv(NATIVE_SWITCH, native)
    payloads = [b"x", b' [ {"a": 1 } , {"b":[1,2]},5 ] ', None, b"[]", b'{"a":1}', b'[{"a":NaN},{"b":"]},"},]', b'[{"a":1}', b"[ ]", b""]
    elements = split_elements(pa.array(payloads, pa.binary())[1:])
    assert list(zip(elements.row.tolist(), elements.index.tolist(), elements.value.to_pylist(), strict=True)) == [
        (0, 0, b'{"a": 1 }'),
        (0, 1, b'{"b":[1,2]}'),
        (0, 2, b"5"),
        (1, 0, None),
        (2, 0, None),
        (3, 0, b'{"a":1}'),
        (4, 0, b'{"a":NaN}'),
        (4, 1, b'{"b":"]},"}'),
        (5, 0, b'[{"a":1}'),
        (6, 0, None),
        (7, 0, b""),
    ]
    assert np.flatnonzero(elements.is_empty).tolist() == [4, 9]


@pytest.mark.parametrize("native", ["auto", "off"])
def test_an_array_of_more_elements_than_have_numbers_stays_whole(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a dead letter then, since an array is no event."""
    monkeypatch.setenv(NATIVE_SWITCH, native)
    large = b"[" + b"1," * (ELEMENTS_MAX - 1) + b"1]"
    elements = split_elements(pa.array([b"[1,2]", large, b"[3]"], pa.binary()))
    assert [len(value) for value in elements.value.to_pylist()] == [1, 1, len(large), 1]


def test_a_replay_reads_from_offsets_of_records() -> None:
    """A saved state stands at a place; what is read next is a record."""
    walked = Walk(plan_of(False, explode="array"))
    walked.judge(*RAW, records_of([(0, BASE_MS, b'[{"t":1000000},{"t":1000001}]')]), walked._marks)
    assert walked._state.next_offset == OF_ELEMENTS.place_of(0, 1) + 1
    walked._step(walked._model.time_only_batch(OF_ELEMENTS.place_of(1)))
    assert OF_ELEMENTS.offset_of(walked._state.next_offset) == 1


def test_the_clock_of_a_range_judges_records() -> None:
    """A record stamped too far ahead is one dead letter, whatever is in it, and moves no time."""
    walked = Walk(plan_of(False, explode="array"))
    walked._planning_times = type(walked._planning_times)(walked._plan.settings.planning_kind, ((0, BASE_MS * 1000),), BASE_MS, SECOND_US)
    log = [(5, BASE_MS, b'[{"t":1000000}]'), (6, BASE_MS + 10_000, b'[{"t":1000000},{"t":1000001}]')]
    walked.judge(*RAW, records_of(log), walked._marks)
    assert walked.letters == [(OF_ELEMENTS.place_of(6), IngestReason.ARRIVAL_AHEAD, log[1][2])]
