"""Session windows: gaps, the maximum duration at its check instants, what has sessions of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of
from support.windows_oracle import COLUMNS, CUTS, EVENTS, results, session

from query.operators.windows.sessions import meeting_instants, session_ends
from query.plan.windows import Session
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

TIMEOUTS = st.integers(1, 12)
MAXIMA = st.integers(1, 25)


def at(*instants: int, **payload: object) -> list[Event]:
    """Events of the only timeline."""
    return [Event(0, instant, payload) for instant in instants]


def sessions(events: list[Event], window: str, keys: str = "") -> list[tuple[int, str]]:
    """End and value of each result."""
    answers = answers_of(
        f"SELECT {keys} COUNT(*) AS n, MIN(System.Timestamp()) AS b INTO out FROM a GROUP BY {keys} {window}", {"a": events}
    )
    short = [value.replace("1970-01-01T00:00:00.0000", "").replace("Z", "") for value in answers.values()]
    return list(zip(answers.times(), short, strict=True))


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        # A session lasts until the timeout after its last event.
        ((1, 3, 11), [(8, 2, 1), (16, 1, 11)]),
        # A gap equal to the timeout is inside.
        ((1, 6, 12), [(11, 2, 1), (17, 1, 12)]),
        # The chain 3 ... 21 has lasted 7 at 10, 17 at 20: it is cut at 20, and the next session begins there.
        ((3, 7, 12, 16, 20, 21, 33), [(20, 5, 3), (26, 1, 21), (38, 1, 33)]),
        # A session that begins at a check instant is cut at the next one.
        ((10, 14, 18, 22), [(20, 3, 10), (27, 1, 22)]),
        # After a cut every check instant cuts.
        ((1, 6, 11, 16, 21, 26, 31, 36, 41), [(20, 4, 1), (30, 2, 21), (40, 2, 31), (46, 1, 41)]),
        # What has lasted until the check ends there though nothing follows, and no empty session does.
        ((9, 14, 19), [(20, 3, 9)]),
        # The timeout and the check at one instant.
        ((5, 10, 15), [(20, 3, 5)]),
    ],
)
def test_where_sessions_end(instants: tuple[int, ...], expected: list[tuple[int, int, int]]) -> None:
    """Timeout 5, maximum 10: end, number of events, first event of each session."""
    found = sessions(at(*instants), "SessionWindow(mcs, 5, 10)")
    assert found == [(end, f'{{"n":{count},"b":"{begin:02}"}}') for end, count, begin in expected]


def test_names_for_the_lengths() -> None:
    """Timeout and MaxDuration in any order, each with its own unit."""
    assert sessions(at(1, 3, 2_002), "Session(MaxDuration(ms, 10), Timeout(mcs, 5))") == [
        (8, '{"n":2,"b":"01"}'),
        (2007, '{"n":1,"b":"1970-01-01T00:00:00.002002"}'),
    ]


def test_one_session_serves_all_groups() -> None:
    """Without PARTITION BY the events of y keep the session of x open; both end with it."""
    events = sorted(at(1, 9, k="x") + at(5, k="y"), key=lambda event: event.system_us)
    assert sessions(events, "SessionWindow(mcs, 5, 100)", "k,") == [(14, '{"k":"x","n":2,"b":"01"}'), (14, '{"k":"y","n":1,"b":"05"}')]


def test_sessions_of_each_key() -> None:
    """With PARTITION BY they do not."""
    events = sorted(at(1, 9, k="x") + at(5, k="y"), key=lambda event: event.system_us)
    window = "SessionWindow(mcs, 5, 100) OVER (PARTITION BY k)"
    assert sessions(events, window, "k,") == [
        (6, '{"k":"x","n":1,"b":"01"}'),
        (10, '{"k":"y","n":1,"b":"05"}'),
        (14, '{"k":"x","n":1,"b":"09"}'),
    ]


def test_groups_within_the_sessions_of_a_key() -> None:
    """Sessions of each k, grouped by k and j."""
    events = [
        Event(0, 1, {"k": "x", "j": 1}),
        Event(0, 4, {"k": "x", "j": 2}),
        Event(0, 4, {"k": "y", "j": 1}),
        Event(0, 8, {"k": "x", "j": 1}),
    ]
    window = "SessionWindow(mcs, 5, 100) OVER (PARTITION BY k)"
    assert sessions(events, window, "k, j,") == [
        (9, '{"k":"y","j":1,"n":1,"b":"04"}'),
        (13, '{"k":"x","j":1,"n":2,"b":"01"}'),
        (13, '{"k":"x","j":2,"n":1,"b":"04"}'),
    ]


def test_aggregates_that_need_the_rows_get_those_of_the_session() -> None:
    """Values count once in each session, whatever group or session they had before."""
    events = [
        Event(0, us, {"k": k, "v": v}) for us, k, v in ((1, "x", 1), (2, "y", 1), (4, "x", 1), (5, "x", 2), (30, "x", 2), (31, "x", 1))
    ]
    sql = "SELECT k, COUNT(DISTINCT v) AS d, COUNT(*) AS n FROM a GROUP BY k, SessionWindow(mcs, 5, 100)"
    assert answers_of(sql, {"a": events}).values() == ['{"k":"x","d":2,"n":3}', '{"k":"y","d":1,"n":1}', '{"k":"x","d":2,"n":2}']


def test_a_plan_says_how_far_it_looks_back() -> None:
    """Twice the maximum duration and the timeout: no session lasts longer, nor does its beginning need to be looked for further back."""
    text = "SELECT k, COUNT(*) AS n FROM a GROUP BY k, SessionWindow(minute, 5, 60) OVER (PARTITION BY k)"
    assert bind_script(parse_script(text), [InputSchema("a")], into="out").explain().splitlines()[1:4] == [
        "  WindowedAggregate session, timeout 5m, maximum 1h of each k by k: k AS k, COUNT(*) AS n",
        "    Scan a",
        "look-back: 2h5m",
    ]


@settings(max_examples=80)
@given(EVENTS, TIMEOUTS, MAXIMA, st.booleans(), CUTS, st.integers(0, 110))
def test_any_cut_gives_what_the_oracle_gives(
    events: list[Event], timeout: int, maximum: int, apart: bool, cuts: list[int], start_us: int
) -> None:
    """The law: cuts show in nothing, and who starts in the middle need not read further back than the plan says."""
    over = " OVER (PARTITION BY k)" if apart else ""
    sql = f"SELECT {COLUMNS} INTO out FROM a GROUP BY k, SessionWindow(mcs, {timeout}, {maximum}){over}"
    expected = results(events, session(timeout, maximum), is_grouped=apart)
    assert answers_of(sql, {"a": events}).results["out"].get(0, []) == expected
    assert answers_of(sql, {"a": events}, cuts).results["out"].get(0, []) == expected
    begun = answers_of(sql, {"a": events}, cuts, start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in expected if row[0] >= start_us]
    read_later = [event for event in events if event.system_us >= start_us - 2 * maximum - timeout]
    assert answers_of(sql, {"a": read_later}, cuts, start_us=start_us) == begun


@settings(max_examples=40)
@given(EVENTS, TIMEOUTS, MAXIMA, CUTS)
def test_each_substream_has_sessions_of_its_own(events: list[Event], timeout: int, maximum: int, cuts: list[int]) -> None:
    """With TIMESTAMP BY ... OVER, whether PARTITION BY says so or not."""
    subs = {"x": 0, "y": 1, "zz": 2, None: 3}
    keyed = [Event(subs[event.payload["k"]], event.system_us, event.payload) for event in events]
    sql = f"SELECT {COLUMNS} INTO out FROM a TIMESTAMP BY t OVER k GROUP BY k, SessionWindow(mcs, {timeout}, {maximum})"
    found = answers_of(sql, {"a": keyed}, cuts, schemas=[InputSchema("a", "t", "k")]).results["out"]
    for sub in subs.values():
        assert found.get(sub, []) == results([event for event in keyed if event.sub == sub], session(timeout, maximum))


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=25)


@settings(max_examples=500)
@given(ROWS, ROWS, st.integers(2, 12), MAXIMA)
def test_rows_that_meet_change_no_session(rows: list[tuple[int, int]], others: list[tuple[int, int]], timeout: int, most: int) -> None:
    """Of some rows all but the first of a slot move to its last: each row, and each row that comes with them, has its session as before."""
    window, together = Session(timeout, most), np.array(rows + others)
    group, instants = together.T
    moved, count = instants.copy(), len(rows)
    moved[:count], left = meeting_instants(group[:count], instants[:count], window)
    assert session_ends(group, moved, window).tolist() == session_ends(group, instants, window).tolist()
    slots = {(key, instant // timeout, -(-instant // most)) for key, instant in rows}
    assert left == len({*zip(group[:count].tolist(), moved[:count].tolist(), strict=True)}) <= 2 * len(slots)
