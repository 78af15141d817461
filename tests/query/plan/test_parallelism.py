"""Parallelism: which queries without OVER may be worked on partition by partition, and that it changes no result."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import Row, answers_of

from query.plan.parallelism import Parallelism, decide_parallelism, keys_text
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.names import InputNames
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.syntax.parse import parse_script

TEXT = {"k": "nvarchar(max)", "n": "bigint", "m": "bigint", "s": "nvarchar(max)"}
A, B = InputSchema("a", "t", "k", TEXT), InputSchema("b", "t", "k", TEXT)
UNTYPED, NUMBER = InputSchema("a", "t", "k"), InputSchema("a", "t", "k", {"k": "bigint"})
PLAIN = InputSchema("a", "t")


def spread(sql: str, *schemas: InputSchema, partitions: tuple[int, ...] = (4, 4)) -> Parallelism:
    """Decide for a script."""
    plans = bind_outputs(parse_script(sql), schemas, into=None if "INTO" in sql else "out")
    overs = {schema.name: InputNames(Source(""), schema).configured_over() for schema in schemas}
    return decide_parallelism(plans, overs, dict(zip(overs, partitions, strict=False)))


SPREAD = [
    "SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, v, TumblingWindow(second, 10)",
    "SELECT v FROM a TIMESTAMP BY t WHERE v > 1",
    "SELECT LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 10)) AS p FROM a TIMESTAMP BY t",
    "WITH s AS (SELECT k AS renamed, SUM(v) AS v FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)) "
    "SELECT renamed, MAX(v) AS m FROM s GROUP BY renamed, TumblingWindow(second, 10)",
    "WITH s AS (SELECT k, v FROM a TIMESTAMP BY t UNION SELECT k, w FROM b TIMESTAMP BY t) "
    "SELECT k, SUM(v) AS v FROM s GROUP BY k, TumblingWindow(second, 10)",
    "SELECT x.v FROM a TIMESTAMP BY t x JOIN b TIMESTAMP BY t y ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.k = y.k",
    "SELECT k, v, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, v, SessionWindow(second, 5, 20) OVER (PARTITION BY k)",
]
EXCHANGED = {
    "SELECT v, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY v, TumblingWindow(second, 10)": "v",
    "SELECT UPPER(k) AS k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY UPPER(k), TumblingWindow(second, 10)": "UPPER(k)",
    "SELECT v, w, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY v, w, SessionWindow(second, 5, 20) OVER (PARTITION BY w)": "w",
    "WITH s AS (SELECT v, w, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY v, w, TumblingWindow(second, 1)) "
    "SELECT w, LAG(n) OVER (PARTITION BY w, n LIMIT DURATION(second, 10)) AS p FROM s": "w",
    "WITH s AS (SELECT k, v FROM a TIMESTAMP BY t UNION SELECT k, w FROM b TIMESTAMP BY t) "
    "SELECT v, COUNT(*) AS n FROM s GROUP BY v, TumblingWindow(second, 10)": "v of a; w of b",
    "SELECT x.v FROM a TIMESTAMP BY t x JOIN b TIMESTAMP BY t y ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.n = y.m": "n of a; m of b",
    "SELECT x.s, COUNT(*) AS n FROM a TIMESTAMP BY t x JOIN b TIMESTAMP BY t y ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.n = y.m "
    "AND x.s = y.s GROUP BY y.m, x.s, TumblingWindow(second, 10)": "n, s of a; m, s of b",
    "SELECT v, COUNT(*) AS n INTO one FROM a TIMESTAMP BY t GROUP BY v, w, TumblingWindow(second, 10); "
    "SELECT w, COUNT(*) AS n INTO two FROM a TIMESTAMP BY t GROUP BY w, TumblingWindow(second, 10); "
    "SELECT * INTO three FROM b TIMESTAMP BY t": "w",
    "SELECT PartitionId, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY PartitionId, TumblingWindow(second, 10)": "PartitionId",
}
ALONE = [
    (
        "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)",
        "meet without a key of their events: groups of WindowedAggregate",
    ),
    ("SELECT LAG(v) OVER (LIMIT DURATION(second, 10)) AS p FROM a TIMESTAMP BY t", "meet without a key of their events: LAG(v"),
    ("SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, SessionWindow(second, 5, 20)", "meet without a key of their events"),
    (
        "WITH s AS (SELECT k, v FROM a TIMESTAMP BY t UNION SELECT v, 1 FROM b TIMESTAMP BY t) "
        "SELECT v, COUNT(*) AS n FROM s GROUP BY v, TumblingWindow(second, 10)",
        "meet without a key of their events",
    ),
    (
        "SELECT x.v FROM a TIMESTAMP BY t x JOIN a TIMESTAMP BY t y ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.n = y.m",
        "meet without a key of their events",
    ),
    (
        "SELECT y.m, COUNT(*) AS n FROM a TIMESTAMP BY t x LEFT JOIN b TIMESTAMP BY t y "
        "ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.n = y.m "
        "GROUP BY y.m, TumblingWindow(second, 10)",
        "meet without a key of their events",
    ),
    (
        "SELECT y.k, COUNT(*) AS n FROM a TIMESTAMP BY t x LEFT JOIN b TIMESTAMP BY t y "
        "ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.k = y.k "
        "GROUP BY y.k, TumblingWindow(second, 10)",
        "meet without a key of their events",
    ),
    (
        "SELECT x.v FROM a TIMESTAMP BY t x JOIN b TIMESTAMP BY t y ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.v = y.v",
        "declare the keys",
    ),
    (
        "SELECT v, COUNT(*) AS n INTO one FROM a TIMESTAMP BY t GROUP BY v, TumblingWindow(second, 10); "
        "SELECT w, COUNT(*) AS n INTO two FROM a TIMESTAMP BY t GROUP BY w, TumblingWindow(second, 10)",
        "no key is common to groups of WindowedAggregate tumbling 10s by v: v AS v, COUNT(*) AS n and groups of",
    ),
    (
        "WITH s AS (SELECT v, System.Timestamp() AS at FROM a TIMESTAMP BY t) "
        "SELECT at, COUNT(*) AS n FROM s GROUP BY DATEPART(hour, System.Timestamp()), at, SessionWindow(second, 5, 20)",
        "meet without a key of their events",
    ),
]


@pytest.mark.parametrize("sql", SPREAD)
def test_what_keeps_keys_apart_is_spread(sql: str) -> None:
    """Through steps, unions, joins, sessions and functions that look back."""
    found = spread(sql, A, B)
    assert found.is_by_partition
    assert found.reason == "one bucket for each partition: everything keeps rows of different k apart"


@pytest.mark.parametrize(("sql", "keys"), EXCHANGED.items())
def test_what_has_other_keys_in_common_is_exchanged(sql: str, keys: str) -> None:
    """By all keys that are common to every place where rows meet, traced back to the events of each input."""
    found = spread(sql, A, B)
    assert not found.is_by_partition
    assert keys_text(found.keys) == keys
    assert found.reason.startswith(f"exchange by {keys}: rows of different substream keys meet: ")


@pytest.mark.parametrize(("sql", "why"), ALONE)
def test_what_brings_keys_together_is_not(sql: str, why: str) -> None:
    """And the plan says where they meet."""
    found = spread(sql, A, B)
    assert not found.is_by_partition
    assert not found.keys
    assert found.reason.startswith("one bucket: ")
    assert why in found.reason


def test_equal_values_must_have_equal_bytes() -> None:
    """A declared number is read from texts, which have many spellings; an undeclared key groups by its value, but a join converts texts."""
    counting = "SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 10)"
    assert not spread(counting, NUMBER).is_by_partition
    assert spread(counting, UNTYPED).is_by_partition
    joining = "SELECT x.v FROM a TIMESTAMP BY t x JOIN a TIMESTAMP BY t y ON DATEDIFF(second, x, y) BETWEEN 0 AND 5 AND x.k = y.k"
    assert 'declare the keys of the join, as "bigint" or "nvarchar(max)", in fields' in spread(joining, UNTYPED).reason
    assert spread(joining, A).is_by_partition


def test_substreams_of_several_keys_are_kept_apart_by_all_of_them() -> None:
    """By one key of two alone, rows of different partitions would meet."""
    pairs = InputSchema("a", timestamp_by="t", over="k, j")
    counting = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY {}, TumblingWindow(second, 10)"
    assert (
        spread(counting.format("j, k, v"), pairs).reason == "one bucket for each partition: everything keeps rows of different k, j apart"
    )
    assert spread(counting.format("k"), pairs).reason.startswith("exchange by k: rows of different substream keys meet")


def test_topics_must_be_spread_alike() -> None:
    """By substreams, into as many partitions."""
    assert spread("SELECT v FROM a TIMESTAMP BY t", PLAIN) == Parallelism(
        False, "one bucket: a has no substreams (over) that could be spread"
    )
    found = spread(SPREAD[4], A, B, partitions=(4, 2))
    assert not found.is_by_partition
    assert found.reason == "exchange by k of a; k of b: the ordered topics have different numbers of partitions (a 4, b 2)"


EVENTS = st.lists(
    st.builds(lambda at, k, v: Event(0, at, {"k": k, "v": v, "w": v}), st.integers(1, 60), st.sampled_from("pqrs"), st.integers(-3, 3)),
    max_size=25,
).map(lambda events: sorted(events, key=lambda event: event.system_us))


@settings(max_examples=40)
@given(st.sampled_from([sql.replace("second", "mcs") for sql in SPREAD]), EVENTS, EVENTS)
def test_buckets_together_give_what_one_gives(sql: str, a: list[Event], b: list[Event]) -> None:
    """Level 3 of the law: every row, and the order of each key's rows, whatever number of buckets."""

    def rows(given: dict[str, list[Event]]) -> list[Row]:
        return answers_of(sql, given, schemas=(A, B)).results["out"].get(0, [])

    def by_bucket(events: list[Event]) -> dict[int, list[Event]]:
        buckets: defaultdict[int, list[Event]] = defaultdict(list)
        for event in events:
            buckets[ord(event.payload["k"]) % 2].append(event)
        return buckets

    spread_a, spread_b = by_bucket(a), by_bucket(b)
    together = [row for bucket in range(2) for row in rows({"a": spread_a[bucket], "b": spread_b[bucket]})]
    assert sorted(together) == sorted(rows({"a": a, "b": b}))
