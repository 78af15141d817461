"""Where a partition stands: what drives its watermark, and what it holds, timeline by timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingest.stage.watermark_report import find_watermark, look_at_held
from ordering.model.state import State
from ordering.model.step import Model
from ordering.policies import Policies
from ordering.testing import Record, batch_of, log_of
from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.observe.reports import HeldReport, SubstreamReport, Watermark

POLICIES = Policies(early_us=None, late_us=60 * SECOND_US, reorder_us=10 * SECOND_US)


def walked(model: Model, rows: Sequence[tuple[int, int, bytes]]) -> State:
    """The state after (event time, arrival, key), seconds."""
    state = model.new_state()
    log: list[Record] = log_of([(at * SECOND_US, arrival * SECOND_US, key) for at, arrival, key in rows], first_offset=0)
    model.step(state, batch_of(log, over=model.over))
    return state


def cause(state: State, over: bool = False) -> str:
    """What drives the watermark."""
    return find_watermark(state, POLICIES, over).cause


def test_an_event_drives_time_until_arrival_leaves_it_behind() -> None:
    """The watermark is the larger of both, and the cause is whichever that is."""
    model = Model(POLICIES, False, 1, 0)
    assert cause(model.new_state()) == "nothing"
    state = walked(model, [(100, 100, b"")])
    assert find_watermark(state, POLICIES, False) == Watermark(90 * SECOND_US, 100 * SECOND_US, "event")
    state = walked(model, [(100, 100, b""), (141, 200, b"")])
    assert find_watermark(state, POLICIES, False) == Watermark(140 * SECOND_US, 141 * SECOND_US, "late floor")


def test_an_estimate_an_import_and_the_end_are_told_apart() -> None:
    """Each by what it left in the state."""
    model = Model(POLICIES, False, 1, 0)
    state = walked(model, [(100, 100, b"")])
    model.step(state, model.time_only_batch(1, estimates=((1, 300 * SECOND_US),)))
    assert find_watermark(state, POLICIES, False).us == 240 * SECOND_US
    assert cause(state) == "estimate"
    model.step(state, model.time_only_batch(1, imports=((1, 250 * SECOND_US),)))
    assert cause(state) == "import"
    model.step(state, model.time_only_batch(1, finish=True))
    assert cause(state) == "end"


def test_what_is_held_is_told_by_substream_the_fullest_first() -> None:
    """How many wait, from when on, and how far the substream's own watermark is."""
    model = Model(POLICIES, True, 1, 0)
    rows = [(100, 100, b"a"), (105, 105, b"b"), (99, 106, b"a"), (98, 107, b"a"), (130, 130, b"c")]
    state = walked(model, rows)
    before = state.save()
    assert find_watermark(state, POLICIES, True).us == state.floor_us == 70 * SECOND_US
    assert cause(state, over=True) == "late floor"
    told = look_at_held(state, POLICIES, True, 2)
    assert told.from_us == 98 * SECOND_US
    first, second = told.top
    assert first == SubstreamReport("a", 90 * SECOND_US, "event", 100 * SECOND_US, held=3, held_from_us=98 * SECOND_US)
    assert second.key == "c"
    assert look_at_held(state, POLICIES, True, 0).top == ()
    assert state.save().head == replace(before).head, "looking changes nothing"


def test_a_partition_that_holds_nothing_says_so() -> None:
    """There is no next release then."""
    model = Model(POLICIES, False, 1, 0)
    assert look_at_held(model.new_state(), POLICIES, False, 0) == HeldReport(None)
    assert find_watermark(model.new_state(), POLICIES, True).largest_us == NEVER
