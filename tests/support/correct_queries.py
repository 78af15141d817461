"""
Correct queries with code of users, drawn: what ``law_of`` must not accuse.

Half of them are scripts of many kinds (:mod:`support.query_kinds`), one or two in a script, with times of another unit; the others are put
together of windows, aggregates, conditions and steps, and call functions, aggregates and an operator whose results depend on their
arguments alone. The events are drawn by ``law_of`` from rows with fields that miss, are null, or have another type.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from support.composed_scripts import compose_scripts
from support.query_kinds import FIRST, INPUT, KINDS

from tidegate.query.extending import (
    BAD_SCHEMA,
    AggregateFunction,
    Operator,
    OperatorExtension,
    Retained,
    ScalarFunction,
    by_substream,
    from_columns,
    group_numbers,
    only_side,
    ticks,
)

TEN_US = 10_000_000
ROWS: list[dict[str, Any]] = [
    {"t": "", "k": "a", "w": 0, "v": 0.5, "g": 1, "list": [1, "x"]},
    {"t": "", "k": "b", "w": 1, "v": 3, "g": "one", "list": []},
    {"t": "", "k": "c", "w": 1, "v": "none", "g": None, "list": 7},
    {"t": "", "k": "a", "w": 0, "v": -2, "g": True},
]
_TEXT, _NUMBER = "nvarchar(max)", "float"


class Latest(Operator):
    """The latest row of each key in each ten seconds: a right operator, of which wrong ones are made."""

    reach_us = TEN_US
    key_columns: tuple[int, ...] | None = (1,)

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        return below, BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        rows = self.order(only_side(retained))
        keys = self.keys(rows)
        due = [self.due_us(us) for us in ticks(rows, "system_us").tolist()]
        last = {(key, us): place for place, (key, us) in enumerate(zip(keys, due, strict=True))}
        subs = ticks(rows, "sub")
        from_us, to_us = by_substream(subs, closing, "from_us"), by_substream(subs, closing, "to_us")
        chosen = sorted(((us, place) for (_, us), place in last.items() if from_us[place] <= us < to_us[place]))
        found = rows.take(pa.array([place for _, place in chosen], pa.int64()))
        times = pa.array([us for us, _ in chosen], pa.int64())
        return found.set_column(found.schema.get_field_index("system_us"), "system_us", times).drop_columns(["position"])

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        return retained

    def order(self, rows: pa.Table) -> pa.Table:
        return rows.take(pa.array(np.argsort(ticks(rows, "system_us"), kind="stable")))

    def keys(self, rows: pa.Table) -> list[Any]:
        return list(group_numbers(ticks(rows, "sub"), [from_columns(rows, "s1")]))

    def due_us(self, system_us: int) -> int:
        return -(-system_us // TEN_US) * TEN_US


def _each(function: Callable[[Any], Any], takes: str = _TEXT, gives: str = _TEXT) -> ScalarFunction:
    kind = pa.string() if gives == _TEXT else pa.float64()
    return ScalarFunction(lambda values: pa.array([None if x is None else function(x) for x in values.to_pylist()], kind), (takes,), gives)


def _runs(function: Callable[[list[Any]], Any], takes: str = _TEXT, gives: str = _TEXT) -> AggregateFunction:
    kind = pa.string() if gives == _TEXT else pa.float64()

    def compute(values: pa.Array, first: Any, last: Any) -> pa.Array:
        runs = (values[low : high + 1].to_pylist() for low, high in zip(first, last, strict=True))
        return pa.array([function([value for value in run if value is not None]) for run in runs], kind)

    return AggregateFunction(compute, (takes,), gives)


SCALARS: Mapping[str, ScalarFunction] = {
    "upper": ScalarFunction(pc.utf8_upper, (_TEXT,), _TEXT),
    "checksum": _each(lambda text: str(zlib.crc32(text.encode()))),
    "sorted": _each(lambda text: "".join(sorted(set(text)))),
    "choosy": _each(lambda text: str(1 / (len(text) - 2))),
    "halved": _each(lambda number: number / 2, _NUMBER, _NUMBER),
    "rounded": _each(lambda number: round(number, 1), _NUMBER, _NUMBER),
}
"""Functions of text, and then of numbers. Of one row's value alone; ``choosy`` raises for texts of two letters."""
AGGREGATES: Mapping[str, AggregateFunction] = {
    "joined": _runs(",".join),
    "kinds": _runs(lambda texts: ",".join(sorted(set(texts)))),
    "latest": _runs(lambda texts: texts[-1] if texts else None),
    "total": _runs(sum, _NUMBER, _NUMBER),
    "spread": _runs(lambda numbers: max(numbers) - min(numbers) if numbers else None, _NUMBER, _NUMBER),
}
OPERATORS = {"newest": OperatorExtension(lambda columns, arguments: (columns, Latest()), "newest(rides, k)")}
_OF_TEXT, _OF_NUMBERS = ("joined", "kinds", "latest"), ("total", "spread")
TABLES = {"r": FIRST}
"""The reference data that kinds of queries look up."""


@dataclass(frozen=True)
class CorrectQuery:
    """A query that keeps the law, with what ``law_of`` takes besides."""

    sql: str
    policies: Mapping[str, str]
    functions: Mapping[str, Any]


def draw_query(chance: random.Random) -> CorrectQuery:
    """Draw a query over the input ``keyed``."""
    over = chance.random() < 0.5
    sql = _of_kinds(chance, over=over) if chance.random() < 0.5 else _of_parts(chance, over=over)
    policies = {"late": chance.choice(["0s", "10s", "1h"]), "reorder": chance.choice(["0s", "1s", "20s"])}
    policies |= {name: chance.choice(["adjust", "drop"]) for name in ("late_action", "out_of_order_action")}
    return CorrectQuery(sql, policies, {**SCALARS, **AGGREGATES, **OPERATORS})


def _of_kinds(chance: random.Random, *, over: bool) -> str:
    kinds = chance.sample(sorted(KINDS), chance.randint(1, 2))
    return compose_scripts(kinds, over=over, unit=chance.choice(["second", "second", "minute", "millisecond"]))


def _of_parts(chance: random.Random, *, over: bool) -> str:
    unit = chance.choice(["second", "second", "minute"])
    read = f"{INPUT} TIMESTAMP BY t{' OVER k' if over else ''}"
    steps, source = "", read
    match chance.randrange(4):
        case 0:
            steps = f"WITH s AS (SELECT k, w, v, g FROM {read}{_condition(chance)}) "
            source = "s"
        case 1:
            steps = (
                f"WITH e AS (SELECT k, w, v, g FROM {read}), s AS (SELECT n.k AS k, n.w AS w, n.v AS v, n.g AS g FROM newest(e, k) AS n) "
            )
            source = "s"
        case 2:
            steps = f"WITH s AS (SELECT k, w, v, LAG(g) OVER (PARTITION BY k LIMIT DURATION({unit}, 9)) AS g FROM {read}) "
            source = "s"
    if chance.random() < 0.25:
        return f"{steps}SELECT {_columns(chance, unit)} FROM {source}{_condition(chance)}"
    having = " HAVING COUNT(*) > 1" if chance.random() < 0.2 else ""
    keys = chance.choice(["k", "k", "k, w"])
    return f"{steps}SELECT {keys}, {_aggregates(chance)} FROM {source}{_condition(chance)} GROUP BY {keys}, {_window(chance, unit)}{having}"


def _condition(chance: random.Random) -> str:
    conditions = ["w = 1", "TRY_CAST(v AS float) > 0", "udf.upper(k) <> 'B'", "k LIKE 'a%'", "g IS NOT NULL", "udf.checksum(k) > '2'"]
    return f" WHERE {chance.choice(conditions)}" if chance.random() < 0.4 else ""


def _columns(chance: random.Random, unit: str) -> str:
    length = chance.randint(1, 30)
    calls = [f"udf.{name}({'TRY_CAST(v AS float)' if name in ('halved', 'rounded') else 'k'}) AS u{at}" for at, name in enumerate(SCALARS)]
    looks = [
        f"LAG(v, {chance.randint(1, 2)}) OVER (PARTITION BY k LIMIT DURATION({unit}, {length})) AS before",
        f"SUM(TRY_CAST(v AS float)) OVER (PARTITION BY k LIMIT DURATION({unit}, {length})) AS s",
        f"uda.joined(k) OVER (PARTITION BY k LIMIT DURATION({unit}, {length})) AS j",
        f"ISFIRST({unit}, {length}) AS first",
        "System.Timestamp() AS at",
        "g",
    ]
    return ", ".join(["k", *chance.sample([*calls, *looks], chance.randint(1, 4))])


def _aggregates(chance: random.Random) -> str:
    own = [f"uda.{name}(k) AS {name}" for name in _OF_TEXT] + [f"uda.{name}(TRY_CAST(v AS float)) AS {name}" for name in _OF_NUMBERS]
    known = [
        "COUNT(*) AS n",
        "SUM(TRY_CAST(v AS float)) AS s",
        "AVG(w) AS a",
        "MAX(g) AS hi",
        "COUNT(DISTINCT v) AS d",
        "STDEV(w) AS e",
        "COLLECT(v) AS c",
        "TopOne(g) OVER (ORDER BY v DESC) AS t",
        "System.Timestamp() AS at",
        "udf.upper(MAX(k)) AS up",
    ]
    return ", ".join(chance.sample([*own, *known], chance.randint(1, 4)))


def _window(chance: random.Random, unit: str) -> str:
    size, hop = chance.randint(2, 30), chance.randint(1, 10)
    return chance.choice(
        [
            f"TumblingWindow({unit}, {size})",
            f"HoppingWindow({unit}, {size + hop}, {hop})",
            f"SlidingWindow({unit}, {size})",
            f"SessionWindow({unit}, {hop}, {size + hop})",
            "SnapshotWindow()",
        ]
    )
