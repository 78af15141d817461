"""The law of operators: results depend on events and on which instants were finished, not on how either was cut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.budgets import budget_of
from support.query_oracle import Event, Shape, is_bad, results
from support.query_runs import END_US, SECOND, CompiledQuery, answers, compiled, event_table, slices

from query.operators.windows.windowed_aggregate import WindowAggregation
from query.plan.row_tables import RESULT_SCHEMA
from query.plan.windows import Window
from tidegate.language.expressions.binding.input_schema import InputSchema

AGGREGATES = "k, System.Timestamp() AS at, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi"
KEYS = st.sampled_from(["a", "b", "é\n", 1, 2, 1.5, True, None])
NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([0.1, 0.2, -0.3, 1e16, -1e16, 1.0, 3.0, 1e-300, 5e-324, 2**53, 2**53 + 1]),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300).map(lambda value: value + 0.0),
)
PAYLOADS = st.one_of(
    st.builds(lambda k, v: {"k": k, "v": v}, KEYS, NUMBERS | st.none()),
    st.builds(lambda k: {"k": k}, KEYS),
    st.builds(lambda v: {"v": v}, NUMBERS),
    st.sampled_from([{"k": "a", "v": "text"}, {"k": "a", "v": True}, b"{", b"[]", b"\xff", b""]),
)


@dataclass(frozen=True)
class Story:
    """Events in order, a window, where batches are cut, and how far finishing stays behind what is certain after each."""

    events: list[Event]
    shape: Shape
    cuts: list[int]
    behind: list[int]


@st.composite
def stories(draw: st.DrawFn, *, over: bool) -> Story:
    """A short stream on small ticks, so that window ends and equal times are common."""
    hop = draw(st.integers(1, 12))
    size = hop if draw(st.booleans()) else draw(st.integers(1, 30))
    gaps = draw(st.lists(st.integers(0, 6), max_size=25))
    events, now, subs = [], draw(st.integers(1_000, 1_040)), {}
    for gap in gaps:
        now += gap
        payload = draw(PAYLOADS)
        key = payload.get("k") if isinstance(payload, dict) else None
        sub = subs.setdefault((type(key), key), len(subs)) if over else 0
        events.append(Event(sub, now, payload))
    cuts = draw(st.lists(st.integers(0, len(events)), max_size=6))
    return Story(
        events, Shape(size, hop, draw(st.integers(0, 20)) % hop), sorted(cuts), draw(st.lists(st.integers(0, 8), min_size=7, max_size=7))
    )


def query_of(story: Story, *, over: bool, few: bool = False) -> CompiledQuery:
    """The oracle's query."""
    shape = story.shape
    source = "keyed TIMESTAMP BY t OVER k" if over else "arrivals"
    window = f"HoppingWindow(Duration(mcs, {shape.size_us}), Hop(mcs, {shape.hop_us}), Offset(mcs, {shape.offset_us}))"
    return compiled(f"SELECT {AGGREGATES} FROM {source} GROUP BY k, {window}", InputSchema("arrivals"), InputSchema("keyed", "t", "k"))


def walk(story: Story, query: CompiledQuery, *, over: bool) -> list[dict[str, object]]:
    """Prepare batch by batch, finish and expire in steps, each substream as far as its own events allow."""
    retained, rows = [], []
    done = {event.sub: 0 for event in story.events} or {0: 0}
    start = 0
    for cut, behind in zip([*story.cuts, len(story.events)], story.behind, strict=False):
        retained.append(query.prepare(event_table(story.events[start:cut], start))[0])
        start = max(start, cut)
        closing = {}
        for sub, before in done.items():
            upcoming = [event.system_us for event in story.events[start:] if event.sub == sub or not over]
            certain = min(upcoming, default=1_200)
            closing[sub] = (before, max(before, certain - behind))
        slice_ = query.concat(retained)
        rows += query.finish(slice_, slices(closing, "from_us", "to_us")).to_pylist()
        retained = [query.expire(slice_, slices({sub: (to,) for sub, (_, to) in closing.items()}, "to_us"))]
        done = {sub: to for sub, (_, to) in closing.items()}
    final = query.finish(query.concat(retained), slices({sub: (before, END_US) for sub, before in done.items()}, "from_us", "to_us"))
    return [*rows, *final.to_pylist()]


def unordered(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """Rows as sorted tuples."""
    return sorted((row["sub"], row["system_us"], row["key"], row["value"]) for row in rows)


@given(stories(over=False))
def test_any_cut_gives_what_the_oracle_gives_without_over(story: Story) -> None:
    """Levels 2 and 3 of the law: windows by one timeline, batches and finishing cut at random, equal the naive answer."""
    expected = sorted(results(story.events, story.shape, 0, 2_000))
    assert unordered(walk(story, query_of(story, over=False), over=False)) == expected


@given(stories(over=True))
def test_any_cut_gives_what_the_oracle_gives_over_a_key(story: Story) -> None:
    """Levels 2 and 3 of the law: each substream finished on its own, cut at random, equals the naive answer."""
    expected = sorted(results(story.events, story.shape, 0, 2_000))
    assert unordered(walk(story, query_of(story, over=True), over=True)) == expected


@settings(max_examples=40)
@given(stories(over=False))
def test_one_step_gives_the_rows_of_many_steps_in_order(story: Story) -> None:
    """Level 2: without OVER results come in (system_us, fixed row order), so finishing in steps only cuts the sequence."""
    query = query_of(story, over=False)
    assert walk(story, query, over=False) == answers(query, story.events)


@settings(max_examples=40)
@given(stories(over=False))
def test_batches_put_together_equal_one_batch(story: Story) -> None:
    """Concatenating prepared batches equals preparing all at once, and survives Arrow IPC."""
    query = query_of(story, over=False)
    bounds = [0, *story.cuts, len(story.events)]
    pieces = [query.prepare(event_table(story.events[low:high], low))[0] for low, high in pairwise(bounds)]
    sink = pa.BufferOutputStream()
    together = query.concat(pieces)
    with pa.ipc.new_stream(sink, together.schema) as writer:
        writer.write_table(together)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(query.concat([query.prepare(event_table(story.events))[0]]))


@settings(max_examples=40)
@given(stories(over=False))
def test_the_bad_rows_are_the_oracles(story: Story) -> None:
    """A row fails by itself, whatever batch it is in."""
    query = query_of(story, over=False)
    _, together = query.prepare(event_table(story.events))
    alone = [query.prepare(event_table([event], at))[1].to_pylist() for at, event in enumerate(story.events)]
    assert together.to_pylist() == [row for rows in alone for row in rows]
    assert together["position"].to_pylist() == [at for at, event in enumerate(story.events) if is_bad(event)]


@settings(max_examples=40)
@given(stories(over=False))
def test_first_and_last_end_bound_the_results_of_an_event(story: Story) -> None:
    """An event alone gives results exactly from its first end to its last end."""
    query = query_of(story, over=False)
    assert isinstance(query.operator, WindowAggregation)
    window = query.operator.node.window
    assert isinstance(window, Window)
    for event in story.events[:3]:
        if is_bad(event):
            continue
        single = event_table([event])["system_us"].to_numpy()
        first, last = int(window.first_end(single)[0]), int(window.last_end(single)[0])
        ends = [row["system_us"] for row in answers(query, [event])]
        assert ends == list(range(first, last + 1, story.shape.hop_us))


def test_nothing_gives_nothing() -> None:
    """An empty slice has the schema of results and no row."""
    query = compiled(f"SELECT {AGGREGATES} FROM arrivals GROUP BY k, TumblingWindow(second, 1)")
    empty = query.concat([])
    found = query.finish(empty, slices({0: (0, END_US)}, "from_us", "to_us"))
    assert found.schema == RESULT_SCHEMA
    assert found.num_rows == 0


def test_many_hops_are_computed_in_pieces() -> None:
    """A window of 100,000 hops per event gives all its results, chunk by chunk, in order."""
    query = compiled("SELECT COUNT(*) AS n FROM arrivals GROUP BY HoppingWindow(Duration(ms, 100000), Hop(ms, 1))")
    with budget_of(rows=1_000):
        rows = answers(query, [Event(0, 5 * SECOND, {}), Event(0, 5 * SECOND + 500, {})])
    assert len(rows) == 100_001
    assert [row["system_us"] for row in rows] == [(5_000 + at) * 1_000 for at in range(100_001)]
    assert (rows[0]["value"], rows[1]["value"], rows[-1]["value"]) == (b'{"n":1}', b'{"n":2}', b'{"n":1}')


def test_a_gap_of_years_costs_nothing() -> None:
    """Windows that hold no event are never visited."""
    query = compiled("SELECT COUNT(*) AS n FROM arrivals GROUP BY HoppingWindow(Duration(ms, 2), Hop(ms, 1))")
    assert len(answers(query, [Event(0, SECOND, {}), Event(0, 10**15, {})])) == 4
