"""Windows(...): several windows side by side, distinguished by System.Window().Id."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import END_US, SECOND, compiled, event_table, slices
from support.script_runs import answers_of
from support.windows_oracle import COLUMNS, CUTS, EVENTS, WindowKind, hopping, results, session, sliding

from query.plan.windows import SNAPSHOT, Window, WindowSet
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script


def at(second: float, **payload: object) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


EXAMPLE = [at(1), at(2), at(11)]


def test_each_window_gives_what_it_gives_alone() -> None:
    """Of the same instant in the order of the script."""
    sql = """SELECT COUNT(*) AS n, System.Window().Id AS w FROM a
             GROUP BY Windows(Window('twenty', TumblingWindow(second, 20)), Window('ten', TumblingWindow(second, 10)))"""
    answers = answers_of(sql, {"a": EXAMPLE})
    assert answers.values() == ['{"n":2,"w":"ten"}', '{"n":3,"w":"twenty"}', '{"n":1,"w":"ten"}']
    assert answers.times() == [10 * SECOND, 20 * SECOND, 20 * SECOND]


def test_without_ids_the_id_is_null() -> None:
    """As it is where there is one window."""
    sql = "SELECT System.Window().Id, COUNT(*) AS n FROM a GROUP BY {}"
    several = answers_of(sql.format("Windows(Tumbling(second, 20), Tumbling(second, 10))"), {"a": EXAMPLE})
    assert several.values() == ['{"Id":null,"n":2}', '{"Id":null,"n":3}', '{"Id":null,"n":1}']
    assert answers_of(sql.format("Tumbling(second, 20)"), {"a": EXAMPLE}).values() == ['{"Id":null,"n":3}']


def test_the_id_may_be_asked_for() -> None:
    """In HAVING, in expressions, and beside the keys, where it changes nothing: windows are apart anyway."""
    sql = """SELECT CONCAT('in ', System.Window().Id) AS w, COUNT(*) AS n FROM a
             GROUP BY System.Window().Id, Windows(Window('Long', Hopping(second, 20, 10)), Window('short', Sliding(second, 1)))
             HAVING System.Window().Id = 'Long' AND COUNT(*) > 2"""
    assert answers_of(sql, {"a": EXAMPLE}).values() == ['{"w":"in Long","n":3}']


def test_windows_print_themselves() -> None:
    """As plans show them."""
    assert str(WindowSet((Window(60_000_000, 60_000_000), SNAPSHOT))) == "windows (tumbling 1m; snapshot)"
    text = """SELECT COUNT(*) AS n FROM a
              GROUP BY Windows(Window('a', Tumbling(minute, 1)), Window('b', Session(minute, 1, 2)), Window('c', System.Timestamp()))"""
    assert bind_script(parse_script(text), [InputSchema("a")], into="out").explain().splitlines()[1:4] == [
        "  WindowedAggregate windows (a: tumbling 1m; b: session, timeout 1m, maximum 2m; c: snapshot) by all: COUNT(*) AS n",
        "    Scan a",
        "look-back: 5m",
    ]


@pytest.mark.parametrize("text", ["Windows(TumblingWindow(hour, 1))", "Windows(Window('x', tumbling(hh, 1)))"])
def test_one_window_is_enough(text: str) -> None:
    """Windows need not be several."""
    root = bind_script(parse_script(f"SELECT COUNT(*) AS n FROM a GROUP BY {text}"), [InputSchema("a")], into="out").root
    assert root.reach_us == 3600 * SECOND


KINDS: Sequence[tuple[str, WindowKind, int]] = (
    ("TumblingWindow(mcs, 7)", hopping(7, 7), 7),
    ("HoppingWindow(mcs, 20, 6)", hopping(20, 6), 20),
    ("HoppingWindow(mcs, 3, 10)", hopping(3, 10), 3),
    ("SlidingWindow(mcs, 9)", sliding(9), 9),
    ("SessionWindow(mcs, 4, 10) OVER (PARTITION BY k)", session(4, 10), 24),
    ("SnapshotWindow()", hopping(1, 1), 0),
)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), st.booleans(), EVENTS, CUTS, st.integers(0, 110))
def test_any_cut_gives_what_the_oracle_gives(
    kinds: list[tuple[str, WindowKind, int]], named: bool, events: list[Event], cuts: list[int], start_us: int
) -> None:
    """The law, for all windows at once."""
    ids = [f"w{number}" if named else None for number in range(len(kinds))]
    windows = [f"Window('{name}', {text})" if name else text for name, (text, _, _) in zip(ids, kinds, strict=True)]
    sql = f"SELECT {COLUMNS}, System.Window().Id AS id INTO out FROM a GROUP BY k, Windows({', '.join(windows)})"
    expected = results(events, *(kind for _, kind, _ in kinds), ids=ids)
    assert answers_of(sql, {"a": events}, cuts).results["out"].get(0, []) == expected
    read_later = [event for event in events if event.system_us >= start_us - max(reach for _, _, reach in kinds)]
    begun = answers_of(sql, {"a": read_later}, cuts, start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in expected if row[0] >= start_us]


SUBS = {"x": 0, "y": 1, "zz": 2, None: 3}


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    EVENTS,
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=12),
)
def test_substreams_advance_each_on_its_own(
    kinds: list[tuple[str, WindowKind, int]], events: list[Event], steps: list[tuple[int, int]]
) -> None:
    """With OVER each is finished as far as it has come, and gives what it would give alone."""
    sql = f"SELECT {COLUMNS} FROM a TIMESTAMP BY t OVER k GROUP BY k, Windows({', '.join(text for text, _, _ in kinds)})"
    query = compiled(sql, InputSchema("a", "t", "k"))
    keyed = [Event(SUBS[event.payload["k"]], event.system_us, event.payload) for event in events]
    retained, _ = query.prepare(event_table(keyed))
    found: dict[int, list[tuple[int, bytes, bytes]]] = {sub: [] for sub in SUBS.values()}
    done = dict.fromkeys(SUBS.values(), 0)

    def finish(to_us: dict[int, int]) -> pa.Table:
        for row in query.finish(retained, slices({sub: (done[sub], end) for sub, end in to_us.items()}, "from_us", "to_us")).to_pylist():
            found[row["sub"]].append((row["system_us"], row["key"], row["value"]))
        done.update(to_us)
        return query.expire(retained, slices({sub: (end,) for sub, end in to_us.items()}, "to_us"))

    for sub, further in steps:
        retained = finish({sub: done[sub] + further})
    retained = finish(dict.fromkeys(done, END_US))
    for sub in done:
        assert found[sub] == results([event for event in keyed if event.sub == sub], *(kind for _, kind, _ in kinds))
    assert retained.num_rows == 0
