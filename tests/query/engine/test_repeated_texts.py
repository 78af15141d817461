"""Results that repeat the texts of their rows leave in parts that fit into memory, however few bytes the rows have."""

from __future__ import annotations

import json
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from support.bucket_oracle import Event as Ordered
from support.bucket_runs import bucket_of
from support.bucket_topics import Line, Topic, decoded_range
from support.budgets import budget_of
from support.query_kinds import INPUT
from support.query_oracle import Event
from support.query_runs import SECOND, event_table, finish, slices
from support.script_runs import program_of

from ordering.columns import payload_columns
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from query.columns import large_tables
from query.engine.program import Program
from query.engine.retention import Retention
from query.operators.windows import holistic
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant

EVENTS, LONG = 40, 2_000
AT_ONCE = 15 * LONG
REPEATING = {
    "arrays of sliding windows": "SELECT COLLECT(note) AS c FROM a GROUP BY SlidingWindow(second, 10)",
    "arrays of hopping windows": "SELECT COLLECT() AS c FROM a GROUP BY HoppingWindow(second, 10, 1)",
    "the best of each window": "SELECT CollectTop(2, note) OVER (ORDER BY n) AS c FROM a GROUP BY SlidingWindow(second, 10)",
    "one row of each window": "SELECT TopOne() OVER (ORDER BY n) AS c FROM a GROUP BY SlidingWindow(second, 10)",
    "extremes of texts": "SELECT MAX(note) AS c, MIN(note) AS d FROM a GROUP BY HoppingWindow(second, 10, 1)",
    "keys of many windows": "SELECT note, COUNT(*) AS n FROM a WHERE n < 5 GROUP BY note, HoppingWindow(second, 200, 1)",
    "keys that are not selected": "SELECT COUNT(*) AS n FROM a WHERE n < 5 GROUP BY note, HoppingWindow(second, 200, 1)",
    "several windows": "SELECT COLLECT(note) AS c FROM a "
    "GROUP BY Windows(Window('a', SlidingWindow(second, 10)), Window('b', HoppingWindow(second, 10, 1)))",
    "a text that all later rows see": "SELECT n, LAST(note) OVER (LIMIT DURATION(hour, 1) WHEN n = 0) AS c FROM a",
    "the greatest text so far": "SELECT n, MAX(note) OVER (LIMIT DURATION(hour, 1)) AS c FROM a",
    "arrays of what came before": "SELECT n, COLLECT(note) OVER (LIMIT DURATION(second, 10)) AS c FROM a",
}


def prepared(sql: str, events: list[Event]) -> tuple[Program, Retention]:
    """Return a query, and what it retains of the events."""
    program, retention = program_of(sql, [InputSchema("a")]), Retention()
    for name, rows in program.prepare("a", event_table(events))[0]:
        retention.add(name, rows)
    return program, retention


def tables_of(sql: str, events: list[Event]) -> list[pa.Table]:
    """Return the tables in which the results of all time leave."""
    program, retention = prepared(sql, events)
    found = program.finish(retention, slices({0: (0, 10_000 * SECOND)}, "from_us", "to_us"))
    return [table for (table,) in found if table.num_rows]


@pytest.mark.parametrize("sql", REPEATING.values(), ids=REPEATING)
@pytest.mark.parametrize("portions", [False, True])
def test_results_leave_in_parts(sql: str, portions: bool) -> None:
    """80 kB of events; no part has much more than what may be repeated at once, and all parts are the whole."""
    events = [Event(0, (number + 1) * SECOND, {"n": number, "note": f"{number:03}" + "x" * LONG}) for number in range(EVENTS)]
    (whole,) = tables_of(sql, events)
    with budget_of(repeated_bytes=AT_ONCE, bytes=AT_ONCE, gathered_bytes=2**30, gathered_rows=25 if portions else 4_000_000):
        parts = tables_of(sql, events)
    assert pa.concat_tables(parts).combine_chunks() == whole.combine_chunks()
    # Two columns may repeat texts.
    assert max(part.nbytes for part in parts) < 2.2 * AT_ONCE < whole.nbytes
    assert len(parts) > 2


KEEPING = {
    **REPEATING,
    "a session": "SELECT TopOne() OVER (ORDER BY n DESC) AS c, COUNT(DISTINCT note) AS d FROM a GROUP BY SessionWindow(second, 5, 60)",
    "a row and all in order": "SELECT CollectTop(3, note) OVER (ORDER BY note DESC) AS c FROM a GROUP BY TumblingWindow(second, 60)",
    "groups of one window": "SELECT n % 3 AS k, COLLECT(note) AS c FROM a GROUP BY n % 3, TumblingWindow(second, 60)",
}


@pytest.mark.parametrize("sql", KEEPING.values(), ids=KEEPING)
def test_texts_beyond_offsets_of_32_bits_change_no_result(sql: str) -> None:
    """A window whose rows have more text than one narrow array holds, alone and beside other groups; the bound is lowered to 20 kB."""
    events = [Event(0, (number + 1) * SECOND, {"n": number, "note": f"{number:03}" + "x" * LONG}) for number in range(EVENTS)]
    whole = pa.concat_tables(tables_of(sql, events))
    bounds = [patch.object(module, "BYTES_MAX", 10 * LONG) for module in (payload_columns, large_tables)]
    with bounds[0], bounds[1], budget_of(gathered_bytes=15 * LONG):
        parts = tables_of(sql, events)
    assert pa.concat_tables(parts).combine_chunks() == whole.combine_chunks()


@pytest.mark.deep
@pytest.mark.heavy
def test_a_column_of_more_than_two_gigabytes_is_one_column() -> None:
    """The bound as it is: what Arrow refuses to join is joined, and values taken from it are as all others."""
    chunks = pa.chunked_array([pa.array(["x" * 2**24])] * 129 + [pa.array(["y"])])
    column = Variant.of(130, {Kind.NVARCHAR: chunks})
    assert column.of_kind(Kind.NVARCHAR).nbytes > 2**31
    taken = column.take_rows(np.array([129, 129])).of_kind(Kind.NVARCHAR)
    assert (taken.type, taken.to_pylist()) == (pa.string(), ["y", "y"])
    joined = large_tables.take_values(chunks, pa.array([129, None, 129]))
    assert (joined.type, joined.to_pylist()) == (pa.string(), ["y", None, "y"])


@pytest.mark.parametrize("having", ["", " HAVING COUNT(*) > 0"])
@pytest.mark.parametrize("function", ["COLLECT(note)", "CollectTop(100, note) OVER (ORDER BY n)"])
def test_an_array_that_is_too_long_fails_its_window_alone(function: str, having: str) -> None:
    """Windows of one and of two rows fit, the one of three does not: it is a dead letter, and the others are as they are without it."""
    sql = f"SELECT COUNT(*) AS n, {function} AS c FROM a GROUP BY TumblingWindow(second, 10){having}"
    events = [Event(0, at * SECOND, {"n": at, "note": "x" * LONG}) for at in (1, 11, 12, 21, 22, 23, 31)]
    with patch.object(holistic, "ARRAY_BYTES_MAX", 2 * LONG + 100):
        program, retention = prepared(sql, events)
        (found,) = finish(program, retention, slices({0: (0, 100 * SECOND)}, "from_us", "to_us"))
    results = [json.loads(value) for value in found["value"].to_pylist()]
    assert [(result["n"], len(result["c"])) for result in results] == [(1, 1), (2, 2), (1, 1)]
    ((system_us, _, reason),) = program.bad
    assert (system_us, reason.partition(":")[0]) == (30 * SECOND, "value too large")


def test_with_over_they_leave_in_parts_too() -> None:
    """Level 2: two substreams, whose windows close by events, by a CTI and by the end: the results of the whole, in their order."""
    sql = f"SELECT k, COLLECT(note) AS c, MAX(note) AS d FROM {INPUT} TIMESTAMP BY t OVER k GROUP BY k, HoppingWindow(second, 10, 1)"
    payloads = [json.dumps({"k": "ab"[number % 2], "note": f"{number:03}" + "x" * LONG}).encode() for number in range(EVENTS)]
    keys = [b"ab"[number % 2 :][:1] for number in range(EVENTS)]
    lines: list[Line] = [
        (number, Ordered(0, number, (number + 1) * SECOND, number, key, payload))
        for number, (key, payload) in enumerate(zip(keys, payloads, strict=True))
    ]
    c, roster = 30 * SECOND, Roster(1, 1, Spread.ALL, True)
    lines.append((EVENTS, Cti(0, 0, c, EVENTS, EVENTS - 29, EVENTS, c, c, roster, Cause.EVENT)))
    topic = Topic([lines], [], inputs=1, over=True, ended=False)

    def parts_of() -> list[tuple[int, list[tuple[int, bytes, bytes]]]]:
        bucket = bucket_of(program_of(sql, [InputSchema(INPUT, "t", "k")]), topic, [0], over=True)
        released = [*bucket.accept_in_parts(0, decoded_range(lines)), bucket.settle(), bucket.end()]
        while not bucket.is_settled:
            released.append(bucket.settle())
        rows = [list(zip(each.system_us.tolist(), each.key.tolist(), each.value.tolist(), strict=True)) for (each,) in released]
        return [(sum(len(value) for _, _, value in part), part) for part in rows if part]

    whole = parts_of()
    with budget_of(repeated_bytes=AT_ONCE, released_bytes=AT_ONCE):
        parts = parts_of()
    assert [row for _, part in parts for row in part] == [row for _, part in whole for row in part]
    assert max(size for size, _ in parts) < 3 * AT_ONCE < max(size for size, _ in whole)
