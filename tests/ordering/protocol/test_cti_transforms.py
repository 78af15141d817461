"""
CTI transforms against naive operators over small lists of events.

An operator here is a function from all events of its inputs to all its results; it knows no CTI. What lies below the
output CTI must be the same whether only the events below the input CTIs are there, or any others at or above them too;
and where a transform is tight, some continuation changes what stands exactly at the output CTI.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.protocol.cti_transforms import (
    Applied,
    Delay,
    GridStart,
    LeftOuter,
    OpenStart,
    Shift,
    Transform,
    least,
    output_cti,
    pulled_back,
    same,
    shifted,
)
from ordering.ticks import INFINITY, NEVER, TICK_MAX, TICK_MIN

Event = tuple[int, Any]
"""System timestamp and payload; also a result."""
Events = Sequence[Event]


def filtered(events: Events) -> Events:
    """Keep some."""
    return [(s, v) for s, v in events if (7 * s + sum(map(ord, repr(v)))) % 3]


def lagged(events: Events) -> Events:
    """LAG: each event with the one before it."""
    ordered = sorted(events, key=repr_of)
    return [(s, (v, before)) for (s, v), before in zip(ordered, [None, *(v for _, v in ordered)], strict=False)]


def first_of_five(events: Events) -> Events:
    """ISFIRST within five ticks, and the LAST value there that is even."""
    told = []
    for s, v in sorted(events, key=repr_of):
        earlier = [e for e in events if repr_of(e) < repr_of((s, v)) and e[0] // 5 == s // 5]
        told.append((s, (v, not earlier, max((e for e in earlier if e[0] % 2 == 0), key=repr_of, default=None))))
    return told


def repr_of(event: Event) -> tuple[int, str]:
    """A total order of events."""
    return event[0], repr(event[1])


def ends_of(events: Events, size: int, hop: int, offset: int) -> set[int]:
    """The ends of all windows (end - size, end] that hold an event."""
    return {end for s, _ in events for end in range(s, s + size) if (end - offset) % hop == 0}


def window(events: Events, start: int, end: int) -> tuple[Event, ...]:
    """What a window (start, end] holds."""
    return tuple(sorted(((s, v) for s, v in events if start < s <= end), key=repr_of))


def grid(size: int, hop: int, offset: int = 0, at_start: bool = False) -> Callable[[Events], Events]:
    """Tumbling and hopping windows, stamped at their end or start."""
    return lambda events: [(end - size if at_start else end, window(events, end - size, end)) for end in ends_of(events, size, hop, offset)]


def sliding(events: Events) -> Events:
    """A result whenever an event enters or leaves a window of four ticks."""
    instants = {s for s, _ in events} | {s + 4 for s, _ in events}
    return [(t, window(events, t - 4, t)) for t in instants]


def snapshots(events: Events) -> Events:
    """All point events of one instant together."""
    return [(t, window(events, t - 1, t)) for t in {s for s, _ in events}]


TIMEOUT, LONGEST = 3, 7


def sessions_of(events: Events) -> list[list[Event]]:
    """Sessions: no gap beyond the timeout, no session beyond its longest."""
    sessions: list[list[Event]] = []
    for event in sorted(events, key=repr_of):
        if sessions and event[0] <= session_end(sessions[-1]):
            sessions[-1].append(event)
        else:
            sessions.append([event])
    return sessions


def session_end(session: Sequence[Event]) -> int:
    """The last instant whose event belongs to a session as it stands."""
    return min(session[-1][0] + TIMEOUT, session[0][0] + LONGEST)


def sessions(events: Events) -> Events:
    """Sessions stamped at their end."""
    return [(session_end(session), tuple(session)) for session in sessions_of(events)]


def session_starts(events: Events) -> Events:
    """Sessions stamped at their start."""
    return [(session[0][0], tuple(session)) for session in sessions_of(events)]


def open_session(events: Events, c: int) -> int | None:
    """The start of the oldest session that an event at c could join."""
    return min((session[0][0] for session in sessions_of(events) if session_end(session) >= c), default=None)


LIFE = 5


def interval_snapshots(events: Events) -> Events:
    """Who is alive between two neighbouring ends of lifetimes [s, s + LIFE), stamped at the earlier."""
    edges = sorted({edge for s, _ in events for edge in (s, s + LIFE)})
    spans = [(low, high, [e for e in sorted(events, key=repr_of) if e[0] <= low < e[0] + LIFE]) for low, high in pairwise(edges)]
    return [(low, (high, tuple(alive))) for low, high, alive in spans if alive]


def open_snapshot(events: Events, c: int) -> int | None:
    """The start of the snapshot that lasts beyond c."""
    return min((low for low, (high, _) in interval_snapshots(events) if high > c), default=None)


def clipped(events: Events) -> Events:
    """Each instant lasts until the next one."""
    instants = sorted({s for s, _ in events})
    return [(low, (high, window(events, low - 1, low))) for low, high in zip(instants, [*instants[1:], None], strict=False)]


def last_instant(events: Events, _c: int) -> int | None:
    """The one lifetime whose end is not known."""
    return max((s for s, _ in events), default=None)


def moved(by: int) -> Callable[[Events], Events]:
    """Stamps moved."""
    return lambda events: [(s + by, v) for s, v in events]


def union(left: Events, right: Events) -> Events:
    """Both."""
    return [*((s, ("left", v)) for s, v in left), *((s, ("right", v)) for s, v in right)]


UNIT = 4


def crossed(left: int, right: int) -> int:
    """DATEDIFF: how many boundaries of the unit lie between, counted one by one."""
    low, high = min(left, right), max(left, right)
    boundaries = sum(t % UNIT == 0 for t in range(low + 1, high + 1))
    return boundaries if right >= left else -boundaries


def joined(low: int, high: int, outer: bool) -> Callable[[Events, Events], Events]:
    """A temporal join; the left outer one stamps a row without a match at the first instant at which none can come."""

    def match(left_us: int, right_us: int) -> bool:
        return low <= crossed(left_us, right_us) <= high

    def join(left: Events, right: Events) -> Events:
        pairs = [(max(s, t), (s, v, t, w)) for s, v in left for t, w in right if match(s, t)]
        alone = [(s, v) for s, v in left if not any(match(s, t) for t, _ in right)]
        return [*pairs, *((lonely(s), (s, v, None)) for s, v in alone if outer)]

    def lonely(left_us: int) -> int:
        return next(s for s in range(left_us, left_us + 100) if not any(match(left_us, t) for t in range(s, left_us + 100)))

    return join


@dataclass(frozen=True)
class Case:
    """An operator, how its transform is made from what came below c, and whether that is tight."""

    name: str
    operator: Callable[..., Events]
    transform: Callable[[Events, int], Transform]
    inputs: int = 1
    tight: bool = True

    def __str__(self) -> str:
        return self.name


def always(transform: Transform) -> Callable[[Events, int], Transform]:
    """A transform that looks at no state."""
    return lambda _events, _c: transform


CASES = [
    Case("filter", filtered, always(same)),
    Case("lag", lagged, always(same)),
    Case("isfirst and last", first_of_five, always(same)),
    Case("sliding window", sliding, always(same)),
    Case("snapshot window", snapshots, always(same)),
    Case("session window", sessions, always(same)),
    Case("tumbling window", grid(4, 4), always(same), tight=False),
    Case("hopping window", grid(7, 3, 1), always(same), tight=False),
    Case("hopping window with gaps", grid(2, 5), always(same), tight=False),
    Case("union", union, always(least), inputs=2),
    Case("join", joined(0, 2, outer=False), always(least), inputs=2),
    Case("join back and forth", joined(-1, 1, outer=False), always(least), inputs=2),
    *(
        Case(f"left outer join {low} {high}", joined(low, high, outer=True), always(LeftOuter(UNIT, low, high)), inputs=2)
        for low, high in [(0, 0), (0, 2), (-1, 1), (-2, 0)]
    ),
    Case("left outer join of what follows", joined(1, 2, outer=True), always(LeftOuter(UNIT, 1, 2)), inputs=2, tight=False),
    Case("left outer join of the past", joined(-2, -1, outer=True), always(LeftOuter(UNIT, -2, -1)), inputs=2, tight=False),
    Case("shifted later", moved(3), always(Shift(3))),
    Case("shifted earlier", moved(-3), always(Shift(-3))),
    Case("delayed", filtered, always(Delay(2)), tight=False),
    Case("tumbling window at its start", grid(4, 4, 0, at_start=True), always(GridStart(4, 4))),
    Case("hopping window at its start", grid(7, 3, 1, at_start=True), always(GridStart(7, 3, 1))),
    Case("hopping window with gaps at its start", grid(2, 5, 0, at_start=True), always(GridStart(2, 5)), tight=False),
    Case("session at its start", session_starts, lambda events, c: OpenStart(open_session(events, c))),
    Case("snapshot at its start", interval_snapshots, lambda events, c: OpenStart(open_snapshot(events, c))),
    Case("clipped lifetime", clipped, lambda events, c: OpenStart(last_instant(events, c))),
]
all_cases = pytest.mark.parametrize("case", CASES, ids=str)


def below(results: Events, until: int) -> Counter[Event]:
    """Results stamped before an instant."""
    return Counter(result for result in results if result[0] < until)


def at(results: Events, instant: int) -> Counter[Event]:
    """Results stamped at an instant."""
    return Counter(result for result in results if result[0] == instant)


def transformed(case: Case, known: Sequence[Events], ctis: Sequence[int]) -> int:
    """The operator's output CTI after what is known."""
    return case.transform(known[0], ctis[0])(*ctis)


TIMES = st.integers(0, 20)


@all_cases
@given(st.data())
def test_what_lies_below_the_output_cti_is_settled(case: Case, data: st.DataObject) -> None:
    """Level 3: no event at or above the input CTIs adds or takes back a result below the output CTI."""
    ctis = data.draw(st.tuples(*[TIMES] * case.inputs))
    inputs = [
        [(s, f"{name}{number}") for number, s in enumerate(data.draw(st.lists(TIMES, max_size=7)))]
        for name, _ in zip("ab", ctis, strict=False)
    ]
    known = [[event for event in events if event[0] < c] for events, c in zip(inputs, ctis, strict=True)]
    out = transformed(case, known, ctis)
    assert below(case.operator(*inputs), out) == below(case.operator(*known), out)


@all_cases
@given(st.data())
def test_an_output_cti_never_falls(case: Case, data: st.DataObject) -> None:
    """Level 3: as CTIs rise over a log, so does what an operator says."""
    events = [(s, number) for number, s in enumerate(data.draw(st.lists(TIMES, max_size=7)))]
    said = NEVER
    for c in [NEVER, *range(21), INFINITY]:
        known = [event for event in events if event[0] < c]
        now = case.transform(known, c)(*[c] * case.inputs)
        assert now >= said
        said = now
    assert said == INFINITY


def stretches(low: int, high: int, most: int) -> Iterator[tuple[int, ...]]:
    """At *most* so many instants in [low, high]."""
    for count in range(most + 1):
        yield from combinations_with_replacement(range(low, high + 1), count)


def changes_at(case: Case, ctis: Sequence[int], instants: Sequence[int], reach: int) -> set[int]:
    """Which of some distances from the output CTI a continuation can change a result at, tried over short logs."""
    found: set[int] = set()
    most = 3 - case.inputs
    pasts = [[[(s, f"a{n}") for n, s in enumerate(times)] for times in stretches(c - reach, c - 1, most)] for c in ctis]
    nexts = [[[(s, f"b{n}") for n, s in enumerate(times)] for times in stretches(c, c + reach, most)] for c in ctis]
    for known in product(*pasts):
        out, before = transformed(case, known, ctis), case.operator(*known)
        for more in product(*nexts):
            after = case.operator(*([*past, *future] for past, future in zip(known, more, strict=True)))
            found |= {d for d in instants if d not in found and at(after, out + d) != at(before, out + d)}
            if 0 in found or len(found) == len(instants):
                return found
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case.tight], ids=str)
@pytest.mark.parametrize("c", range(20, 27))
def test_a_tight_transform_can_be_no_larger(case: Case, c: int) -> None:
    """Level 3: some log and continuation change a result stamped exactly at the output CTI."""
    others = [c] if case.inputs == 1 else [c - 3, c, c + 5]
    for other in others:
        ctis = [c] if case.inputs == 1 else [c, other]
        assert changes_at(case, ctis, [0], 5 if case.inputs == 2 else 8), ctis


@pytest.mark.parametrize(("size", "hop", "offset"), [(4, 4, 0), (7, 3, 1), (2, 5, 0)])
@pytest.mark.parametrize("c", range(20, 26))
def test_a_window_at_its_end_changes_only_from_the_next_end_on(size: int, hop: int, offset: int, c: int) -> None:
    """Level 3: on a grid of ends c is tight up to the first end that is not below it."""
    case = Case("grid", grid(size, hop, offset), always(same))
    until_next = (offset - c) % hop
    assert changes_at(case, [c], range(-3, hop), 8) - {until_next} <= {d for d in range(hop) if (c + d - offset) % hop == 0}
    assert changes_at(case, [c], [until_next], 8) == {until_next}


@pytest.mark.parametrize("case", [case for case in CASES if "start" in case.name or "clipped" in case.name], ids=str)
@given(st.lists(TIMES, min_size=1, max_size=5), st.integers(5, 20))
def test_an_open_start_is_tight_whatever_is_open(case: Case, times: list[int], c: int) -> None:
    """Level 3: for every log, not just for some, a continuation changes a result stamped at the output CTI."""
    if case.tight:
        known = [(s, n) for n, s in enumerate(times) if s < c]
        out, before = transformed(case, [known], [c]), case.operator(known)
        assert any(at(case.operator([*known, (s, "more")]), out) != at(before, out) for s in range(c, c + 10))


UNARY: list[tuple[Callable[[Events], Events], Transform]] = [
    (filtered, same),
    (lagged, same),
    (grid(4, 4), same),
    (grid(7, 3, 1, at_start=True), GridStart(7, 3, 1)),
    (sliding, same),
    (moved(3), Shift(3)),
    (moved(-2), Shift(-2)),
]
BINARY: list[tuple[Callable[[Events, Events], Events], Transform]] = [
    (union, least),
    (joined(-1, 1, outer=False), least),
    (joined(0, 1, outer=True), LeftOuter(UNIT, 0, 1)),
]
Run = Callable[[Mapping[str, Events]], Events]


@st.composite
def plans(draw: st.DrawFn, depth: int = 3) -> tuple[Applied | str, Run]:
    """Draw a plan over the inputs a, b and c, and what computes it."""
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from("abc"))
        return name, lambda inputs: inputs[name]
    if draw(st.booleans()):
        operator, transform = draw(st.sampled_from(UNARY))
        plan, run = draw(plans(depth - 1))
        return Applied(transform, (plan,)), lambda inputs: operator(run(inputs))
    both, transform = draw(st.sampled_from(BINARY))
    (left, left_run), (right, right_run) = draw(plans(depth - 1)), draw(plans(depth - 1))
    return Applied(transform, (left, right)), lambda inputs: both(left_run(inputs), right_run(inputs))


@given(plans(), st.data())
def test_the_law_carries_over_from_operators_to_plans(drawn: tuple[Applied | str, Run], data: st.DataObject) -> None:
    """Level 3: composed along a plan, what lies below its output CTI is settled."""
    plan, run = drawn
    ctis = {name: data.draw(TIMES) for name in "abc"}
    inputs = {name: [(s, f"{name}{n}") for n, s in enumerate(data.draw(st.lists(TIMES, max_size=3)))] for name in "abc"}
    known = {name: [event for event in events if event[0] < ctis[name]] for name, events in inputs.items()}
    out = output_cti(plan, ctis)
    assert below(run(inputs), out) == below(run(known), out)
    assert output_cti(plan, dict.fromkeys("abc", INFINITY)) == INFINITY
    assert output_cti(plan, dict.fromkeys("abc", NEVER)) == NEVER


@given(st.integers(NEVER, INFINITY), st.integers(-(2**63), 2**63 - 1))
def test_a_shift_stays_inside_int64_and_ends_no_stream(c: int, by_us: int) -> None:
    """Level 3: what would overflow becomes the nearest time that is neither NEVER nor INFINITY; those two stay."""
    out = shifted(c, by_us)
    if c in (NEVER, INFINITY):
        assert out == c
    else:
        assert NEVER < out < INFINITY
        assert out == c + by_us or out in (NEVER + 1, INFINITY - 1)
    assert Shift(by_us)(c) == out


@given(st.integers(NEVER, INFINITY), st.none() | st.integers(NEVER, TICK_MAX))
def test_what_is_open_pulls_back_and_never_forward(c: int, start_us: int | None) -> None:
    """Level 3: only where time has a place between NEVER and INFINITY."""
    out = pulled_back(c, start_us)
    assert out <= c
    assert (out == NEVER) == (c == NEVER)
    assert (out == INFINITY) == (c == INFINITY)


def test_a_left_row_waits_for_the_end_of_the_last_unit_that_can_match() -> None:
    """A row at 00:00:59 with DATEDIFF(minute) BETWEEN 0 AND 1 can be matched until 00:01:59.999999, one second counts as a minute."""
    minute, second = 60_000_000, 1_000_000
    join = LeftOuter(minute, 0, 1)
    assert join.matches(59 * second, 119 * second)
    assert not join.matches(59 * second, 120 * second)
    assert join.unmatched_us(59 * second) == 2 * minute
    assert LeftOuter(minute, -3, -1).unmatched_us(59 * second) == 59 * second
    assert LeftOuter(minute, 1, 0).unmatched_us(59 * second) == 59 * second
    assert join(TICK_MIN, TICK_MAX) == TICK_MIN
