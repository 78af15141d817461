"""Programs: several operators one after the other, several outputs; the law under random cuts of time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of, program_of

from ordering.ticks import TICK_MIN
from query.engine import gathering
from query.operators.windows import compacting
from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000


def at(second: float, **payload: object) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


def test_a_step_is_read_by_its_columns() -> None:
    """WITH names rows; a SELECT over them reads their columns, whatever their spelling."""
    sql = """WITH busy AS (
                 SELECT k, COUNT(*) AS n, System.Timestamp() AS at FROM a GROUP BY k, TumblingWindow(second, 10) HAVING COUNT(*) > 1)
             SELECT K, N * 2 AS twice, at, System.Timestamp() AS now INTO out FROM busy WHERE n < 3"""
    events = [at(1, k="x"), at(2, k="x"), at(3, k="y"), at(11, k="x"), at(12, k="x"), at(13, k="x")]
    assert answers_of(sql, {"a": events}).values() == ['{"K":"x","twice":4,"at":"1970-01-01T00:00:10Z","now":"1970-01-01T00:00:10Z"}']


def test_windows_over_windows() -> None:
    """A window's results are events of the next one, at its end."""
    sql = """WITH short AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 10))
             SELECT SUM(n) AS s, MAX(n) AS m, COUNT(*) AS c INTO out FROM short GROUP BY TumblingWindow(second, 30)"""
    events = [at(1, k="x"), at(2, k="x"), at(11, k="y"), at(30, k="x"), at(31, k="x")]
    answers = answers_of(sql, {"a": events})
    assert answers.values() == ['{"s":4,"m":2,"c":3}', '{"s":1,"m":1,"c":1}']
    assert answers.times() == [30 * SECOND, 60 * SECOND]


def test_a_step_that_passes_events_on_leaves_all_their_fields() -> None:
    """SELECT * of an input is that input, filtered; conditions are asked one after the other."""
    sql = """WITH big AS (SELECT * FROM a WHERE v > 1), red AS (SELECT * FROM big WHERE colour = 'red')
             SELECT v, deep.er AS d INTO out FROM red WHERE v < 4"""
    events = [at(1, v=1, colour="red"), at(2, v=2, colour="red", deep={"er": 7}), at(3, v=3), at(4, v=4, colour="red")]
    assert answers_of(sql, {"a": events}).values() == ['{"v":2,"d":7}']


def test_several_outputs_share_their_step() -> None:
    """Each SELECT ... INTO has results of its own; a step that two of them name is computed once."""
    sql = """WITH counts AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 10))
             SELECT k INTO few FROM counts WHERE n = 1;
             SELECT k, n INTO many FROM counts WHERE n > 1"""
    answers = answers_of(sql, {"a": [at(1, k="x"), at(2, k="x"), at(3, k="y")]})
    assert answers.values("few") == ['{"k":"y"}']
    assert answers.values("many") == ['{"k":"x","n":2}']


def test_union_keeps_duplicates_and_the_order_of_the_script() -> None:
    """Rows of the same instant come in the order of the parts."""
    sql = "SELECT v, 'b' AS side INTO out FROM b UNION SELECT v, 'a' FROM a UNION SELECT v, 'b' FROM b"
    answers = answers_of(sql, {"a": [at(1, v=1), at(2, v=2)], "b": [at(2, v=3)]})
    assert answers.values() == ['{"v":1,"side":"a"}', '{"v":3,"side":"b"}', '{"v":2,"side":"a"}', '{"v":3,"side":"b"}']


def test_a_row_between_two_operators_may_fail() -> None:
    """It is counted with its reason, and the others go on."""
    sql = """WITH texts AS (SELECT v, COUNT(*) AS n FROM a GROUP BY v, TumblingWindow(second, 10))
             SELECT CAST(v AS bigint) AS whole INTO out FROM texts"""
    answers = answers_of(sql, {"a": [at(1, v="7"), at(2, v="x")]})
    assert answers.values() == ['{"whole":7}']
    assert answers.reasons == ["conversion failed: CAST(v AS bigint)"]


def test_a_row_that_fails_before_the_start_is_not_told_again() -> None:
    """What a run from a start on computes only for later rows, an earlier run has told."""
    sql = """WITH texts AS (SELECT CAST(v AS bigint) AS v FROM a GROUP BY v, TumblingWindow(second, 10))
             SELECT SUM(v) AS s INTO out FROM texts GROUP BY TumblingWindow(second, 20)"""
    events = {"a": [at(1, v="x"), at(2, v="7"), at(11, v="y"), at(12, v="8")]}
    assert answers_of(sql, events).reasons == ["conversion failed: CAST(v AS bigint)"] * 2
    later = answers_of(sql, events, start_us=20 * SECOND)
    assert (later.values(), later.reasons) == (['{"s":15}'], ["conversion failed: CAST(v AS bigint)"])


SCRIPTS = (
    "WITH s AS (SELECT k, SUM(v) AS v, COUNT(*) AS n FROM a GROUP BY k, HoppingWindow(mcs, 12, 5)) "
    "SELECT k, SUM(v) AS v, MAX(n) AS n, System.Timestamp() AS at INTO out FROM s GROUP BY k, HoppingWindow(mcs, 30, 10)",
    "WITH s AS (SELECT k, v FROM a WHERE v > 0 UNION SELECT k, w FROM b) "
    "SELECT k, COUNT(v) AS n INTO out FROM s GROUP BY k, TumblingWindow(mcs, 7)",
    "SELECT k, v INTO out FROM a UNION SELECT k, COUNT(*) FROM b GROUP BY k, TumblingWindow(mcs, 3)",
)


def instants(count: int) -> st.SearchStrategy[int]:
    """Draw one of the first valid times: below them more is read than is needed, and nothing would show what is not."""
    return st.integers(TICK_MIN, TICK_MIN + count)


EVENTS = st.lists(
    st.builds(lambda at, k, v: Event(0, at, {"k": k, "v": v, "w": v}), instants(60), st.sampled_from("xyz"), st.integers(-3, 3)),
    max_size=20,
).map(lambda events: sorted(events, key=lambda event: event.system_us))


@settings(max_examples=60)
@given(st.sampled_from(SCRIPTS), EVENTS, EVENTS, st.lists(instants(80), max_size=6), instants(70))
def test_any_cut_gives_the_same_sequence(sql: str, a: list[Event], b: list[Event], cuts: list[int], start_us: int) -> None:
    """Level 2 of the law, operators alone: cuts of time, and a start in the middle, show in no result."""
    whole = answers_of(sql, {"a": a, "b": b})
    cut = answers_of(sql, {"a": a, "b": b}, cuts)
    assert cut == whole
    begun = answers_of(sql, {"a": a, "b": b}, cuts, start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in whole.results["out"].get(0, []) if row[0] >= start_us]


EACH_OPERATOR = {
    "hopping": "SELECT k, COUNT(*) AS n INTO out FROM a GROUP BY k, HoppingWindow(mcs, 4, 3)",
    "sliding": "SELECT k, COUNT(*) AS n INTO out FROM a GROUP BY k, SlidingWindow(mcs, 4)",
    "session": "SELECT k, COUNT(*) AS n INTO out FROM a GROUP BY k, SessionWindow(mcs, 2, 5)",
    "several windows": "SELECT k, COLLECT(v) AS c INTO out FROM a GROUP BY k, Windows(TumblingWindow(mcs, 5), SlidingWindow(mcs, 3))",
    "join": "SELECT x.v AS x, y.v AS y INTO out FROM a x JOIN b y ON DATEDIFF(mcs, x, y) BETWEEN -2 AND 3 AND x.k = y.k",
    "left join": "SELECT x.v AS x, y.v AS y INTO out FROM a x LEFT JOIN b y ON DATEDIFF(mcs, x, y) BETWEEN -2 AND 1 AND x.k = y.k",
    "lag": "SELECT v, LAG(v, 2) OVER (PARTITION BY k LIMIT DURATION(mcs, 7)) AS w INTO out FROM a",
    "last": "SELECT v, LAST(v) OVER (LIMIT DURATION(mcs, 4) WHEN k = 'y') AS w INTO out FROM a",
    "isfirst": "SELECT v, ISFIRST(mcs, 4) OVER (PARTITION BY k) AS first INTO out FROM a",
    "running": "SELECT v, SUM(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 4)) AS s INTO out FROM a",
    "active": "WITH r AS (SELECT k, v FROM a) SELECT k, active INTO out FROM active(r, mcs, 4, k)",
    "spikes": "SELECT v, AnomalyDetection_SpikeAndDip(v, 90, 2, 'dips') OVER (PARTITION BY k LIMIT DURATION(mcs, 7)) AS s INTO out FROM a",
    "changes": "SELECT v, AnomalyDetection_ChangePoint(v, 90, 2) OVER (PARTITION BY k LIMIT DURATION(mcs, 7)) AS s INTO out FROM a",
    "pattern": "SELECT * INTO out FROM a MATCH_RECOGNIZE (LIMIT DURATION(mcs, 5) PARTITION BY k MEASURES Classifier() AS c, LAST(v) AS v "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B* C?) DEFINE B AS B.v % 2 = 1, C AS C.v > 9) AS m",
}


@pytest.mark.parametrize("sql", EACH_OPERATOR.values(), ids=EACH_OPERATOR)
def test_no_instant_shows_that_time_was_cut_or_begun_there(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The same law at every instant there is, read from as far before it as the plan looks back.

    An operator that forgets a row a microsecond too soon, or looks back a microsecond too little, gives another result somewhere. So does
    one that adds rows up or leaves some unread which do not count alike: here few rows are treated as many are.
    """
    first_us = 3 * TICK_MIN
    a = [Event(0, first_us + at, {"k": k, "v": at}) for at, k in zip((2, 3, 3, 6, 7, 10, 12, 15), "xyxyxxyx", strict=True)]
    b = [Event(0, first_us + at, {"k": k, "v": -at}) for at, k in zip((1, 4, 5, 9, 11, 16, 17), "xyxxyyx", strict=True)]
    events = {"a": a, "b": b} if "b y" in sql else {"a": a}
    whole, (plan,) = answers_of(sql, events), program_of(sql, [InputSchema(name) for name in events]).plans
    assert len(whole.values()) > 5
    for module, name in ((gathering, "INDEXED_FROM"), (gathering, "BLOCK_ROWS"), (compacting, "COMPACTED_FROM"), (compacting, "SAVING")):
        monkeypatch.setattr(module, name, 1)
    for instant in range(first_us + 1, first_us + 24):
        assert answers_of(sql, events, [instant, instant + 2]) == whole, instant
        read = {name: [event for event in each if event.system_us >= instant - plan.lookback_us] for name, each in events.items()}
        begun = answers_of(sql, read, [instant], start_us=instant)
        assert begun.results["out"].get(0, []) == [row for row in whole.results["out"][0] if row[0] >= instant], instant
