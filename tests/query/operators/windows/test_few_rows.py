"""Aggregates of a few rows, added up without SQL: the same bytes as of the statement that adds up many."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import END_US, SECOND, compiled, event_table, slices

from query.operators.windows import compacting, framing

SOME = settings(max_examples=max(settings().max_examples // 2, 1))
WINDOWS = ["TumblingWindow(second, 4)", "HoppingWindow(second, 6, 2)", "SlidingWindow(second, 3)", "SessionWindow(second, 2, 9)"]
SELECT = "COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a, MIN(w) AS lo, MAX(w) AS hi"
NUMBERS = st.sampled_from(
    [0, 1, -1, -7, 2**53 + 1, 2**63 - 1, -(2**63), 2**32, 0.1, -0.2, 0.3, 1e308, -1e308, 5e-324, 1e-30, -0.0, 2.5, None]
)
ANY = NUMBERS | st.sampled_from(["", "a", "é", "\U0001f600", True, False])
PAYLOADS = st.fixed_dictionaries({"k": st.sampled_from(["x", "y", 1, "1", 1.0, None, True]), "v": NUMBERS, "w": ANY})
EVENTS = st.lists(st.tuples(st.integers(1, 12), PAYLOADS), min_size=1, max_size=20)


@SOME
@given(st.sampled_from(WINDOWS), EVENTS, st.integers(0, 20))
def test_few_rows_give_the_bytes_that_sql_gives(window: str, drawn: list[tuple[int, dict[str, object]]], compacted: int) -> None:
    """Level 3: rows of values and rows of states, in whatever mixture, make the same results, with or without SQL."""
    query = compiled(f"SELECT {SELECT} FROM arrivals GROUP BY k, {window}")
    times = sorted(second for second, _ in drawn)
    events = [Event(0, second * SECOND, payload) for second, (_, payload) in zip(times, drawn, strict=True)]

    def results() -> list[dict[str, object]]:
        retained = [
            query.prepare(event_table(part, first))[0] for part, first in ((events[:compacted], 0), (events[compacted:], compacted))
        ]
        retained[0] = query.operator.compact(retained[0]) if retained[0].num_rows else retained[0]
        return query.finish(
            query.concat([part for part in retained if part.num_rows]), slices({0: (0, END_US)}, "from_us", "to_us")
        ).to_pylist()

    with patch.multiple(compacting, COMPACTED_FROM=1, SAVING=0):
        few = results()
        with patch.object(framing, "FEW_ROWS", 0):
            assert few == results()
    event(f"{len(few) // 5 * 5} results or more")
