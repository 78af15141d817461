"""
``law_of`` finds faults in users' code, and only faults. Levels 2 and 3: each case is a query or a sink that a user could write.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.correct_queries import TEN_US, Latest

from tidegate.query.extending import AggregateFunction, OperatorExtension, Retained, ScalarFunction
from tidegate.testing import LawBrokenError, SinkUnderTest, law_of

RIDES: list[dict[str, Any]] = [{"at": "", "k": "a", "v": 0.5}, {"at": "", "k": "b", "v": 2.0}, {"at": "", "k": "c", "v": 1.5}]
CALLED = "SELECT udf.f(k) AS x FROM rides TIMESTAMP BY at"
GROUPED = "SELECT k, uda.f(k) AS x FROM rides TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)"
ALL = "SELECT uda.f(k) AS x FROM rides TIMESTAMP BY at GROUP BY HoppingWindow(second, 60, 20)"
SUMS = "SELECT uda.f(v) AS x FROM rides TIMESTAMP BY at GROUP BY HoppingWindow(second, 20, 10)"
OPERATED = "SELECT r.k, r.v FROM f(rides, k) AS r TIMESTAMP BY at"
SQL_OF_KEYS = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM rides TIMESTAMP BY at{over} GROUP BY k"
WINDOWS = ["TumblingWindow(second, 10)", "HoppingWindow(second, 10, 5)", "SessionWindow(second, 5, 20)", "SlidingWindow(second, 7)"]
FEW = 2
TEXT, NUMBER = "nvarchar(max)", "float"

COUNTER = [0]
BATCHES: list[int] = []
SEEN: dict[str, int] = {}
CACHE: list[str] = []


def _each(function: Callable[[str], str]) -> ScalarFunction:
    return ScalarFunction(
        lambda texts: pa.array([None if text is None else function(text) for text in texts.to_pylist()], pa.string()), (TEXT,), TEXT
    )


def _whole(function: Callable[[pa.Array], Sequence[Any]]) -> ScalarFunction:
    return ScalarFunction(lambda texts: pa.array(function(texts), pa.string()), (TEXT,), TEXT)


def _runs(function: Callable[[list[Any]], Any], takes: str = TEXT, gives: str = TEXT) -> AggregateFunction:
    kind = pa.string() if gives == TEXT else pa.float64()
    return AggregateFunction(
        lambda values, first, last: pa.array(
            [function(values[low : high + 1].to_pylist()) for low, high in zip(first, last, strict=True)], kind
        ),
        (takes,),
        gives,
    )


def _count_calls(text: str) -> str:
    COUNTER[0] += 1
    return f"{text}{COUNTER[0]}"


def _count_batches(texts: pa.Array) -> list[str]:
    BATCHES.append(len(texts))
    return [str(len(BATCHES))] * len(texts)


def _first_seen(text: str) -> str:
    return f"{text}{SEEN.setdefault(text, len(SEEN))}"


def _remember(text: str) -> str:
    CACHE.append(text)
    return CACHE[0]


def _remember_last(text: str, last: list[str] = []) -> str:  # noqa: B006  the fault
    last.append(text)
    return "".join(last[-2:])


class Attribute:
    """State in a class."""

    calls = 0

    @classmethod
    def count(cls, text: str) -> str:
        cls.calls += 1
        return f"{text}{cls.calls}"


def _closure() -> Callable[[str], str]:
    calls = 0

    def count(text: str) -> str:
        nonlocal calls
        calls += 1
        return f"{text}{calls}"

    return count


def _running_total(values: pa.Array, first: Any, last: Any) -> pa.Array:
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values.to_numpy(zero_copy_only=False)))])
    return pa.array(sums[last + 1] - sums[first])


FAULTS: Mapping[str, tuple[str, ScalarFunction | AggregateFunction]] = {
    "order of a set": (CALLED, _each(lambda text: "".join({text, "x", "y", "z", "w"}))),
    "hash of a text": (CALLED, _each(lambda text: str(hash(text) % 1000))),
    "order of a set of a group": (ALL, _runs(lambda texts: "".join({f"{text}" for text in texts} | {"p", "q", "r"}))),
    "first of a set": (CALLED, _each(lambda text: next(iter({text, "left", "right", "up"})))),
    "order of a dict of a set": (CALLED, _each(lambda text: ",".join(dict.fromkeys({text, "u", "v", "w"}, 1)))),
    "address of an object": (CALLED, _each(lambda text: str(id(object())))),
    "clock, seconds": (CALLED, _each(lambda text: str(int(time.time())))),
    "clock, nanoseconds": (CALLED, _each(lambda text: str(time.time_ns()))),
    "clock, day": (CALLED, _each(lambda text: datetime.now().strftime("%Y-%m-%d"))),  # noqa: DTZ005
    "clock, year": (CALLED, _each(lambda text: str(datetime.today().year))),  # noqa: DTZ002
    "clock, monotonic": (CALLED, _each(lambda text: str(time.monotonic()))),
    "time zone": (CALLED, _each(lambda text: str(datetime.fromtimestamp(0)))),  # noqa: DTZ006
    "random": (CALLED, _each(lambda text: str(random.random()))),
    "random of numpy": (CALLED, _each(lambda text: str(np.random.rand()))),
    "random, seeded once": (CALLED, _whole(lambda texts: [str(x) for x in np.random.default_rng(7).random(len(texts))])),
    "state in a global": (CALLED, _each(_count_calls)),
    "state in a dict": (CALLED, _each(_first_seen)),
    "state in a list": (CALLED, _each(_remember)),
    "state in a default": (CALLED, _each(_remember_last)),
    "state in a class": (CALLED, _each(Attribute.count)),
    "state in a closure": (CALLED, _each(_closure())),
    "number of the row in its batch": (CALLED, _whole(lambda texts: [str(number) for number in range(len(texts))])),
    "number of the batch": (CALLED, _whole(_count_batches)),
    "length of the batch": (CALLED, _whole(lambda texts: [str(len(texts))] * len(texts))),
    "the row before": (CALLED, _whole(lambda texts: [None, *texts.to_pylist()][:-1])),
    "largest of the batch": (CALLED, _whole(lambda texts: [pc.max(texts).as_py()] * len(texts))),
    "running total": (SUMS, AggregateFunction(_running_total, (NUMBER,), NUMBER)),
    "state in an aggregate": (GROUPED, _runs(lambda texts: f"{len(texts)}{_count_calls('')}")),
    "rows of other runs": (
        GROUPED,
        AggregateFunction(lambda values, first, last: pa.array([str(len(values))] * len(first)), (TEXT,), TEXT),
    ),
    "random in an aggregate": (GROUPED, _runs(lambda texts: str(random.choice([1, 2, 3, 4, 5, 6])))),
}


class KeyForgotten(Latest):
    """Says that rows of different keys never meet, and lets them meet."""

    def keys(self, rows: pa.Table) -> list[Any]:
        return [0] * len(rows)


class StateNotSaved(Latest):
    """Passes each key once, and remembers in an attribute which ones have passed."""

    key_columns = ()

    def __init__(self) -> None:
        self.passed: set[Any] = set()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        rows = super().rows(retained, closing)
        keys = rows["s1_s"].to_pylist()
        fresh = [place for place, key in enumerate(keys) if key not in self.passed and key not in keys[:place]]
        self.passed.update(keys)
        return rows.take(pa.array(fresh, pa.int64()))


class BeforeFinal(Latest):
    """Gives the latest row of those that there are, at once: more may come."""

    def due_us(self, system_us: int) -> int:
        return system_us // TEN_US * TEN_US


def _operator(made: type[Latest]) -> OperatorExtension:
    return OperatorExtension(lambda columns, arguments: (columns, made()), "f(rides, k)")


FAULTS_OF_OPERATORS = {"key forgotten": KeyForgotten, "state not saved": StateNotSaved, "result before final": BeforeFinal}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, tmp_path: Path) -> None:
    """Each planted fault, with default settings; it is not made smaller."""
    sql, function = FAULTS[name]
    with pytest.raises(LawBrokenError):
        law_of(sql, {"rides": RIDES}, functions={"f": function}, case_folder=tmp_path / "case", shrink_s=0)


@pytest.mark.parametrize("name", FAULTS_OF_OPERATORS)
def test_a_fault_of_an_operator_is_found(name: str, tmp_path: Path) -> None:
    """Each planted fault, with default settings."""
    with pytest.raises(LawBrokenError) as caught:
        law_of(OPERATED, {"rides": RIDES}, functions={"f": _operator(FAULTS_OF_OPERATORS[name])}, case_folder=tmp_path / "case")
    assert "undisturbed it is" in caught.value.sentence
    assert len((tmp_path / "case/input.rides.ndjson").read_text().splitlines()) <= 2


def test_a_right_operator_is_not_accused() -> None:
    """The one of which the wrong ones are made."""
    law_of(OPERATED, {"rides": RIDES}, functions={"f": _operator(Latest)}, examples=FEW)


GOOD: Mapping[str, tuple[str, ScalarFunction | AggregateFunction]] = {
    "a function of the row": (CALLED, _each(lambda text: text.upper())),
    "a sum in order": (SUMS, _runs(lambda numbers: sum(number for number in numbers if number is not None), NUMBER, NUMBER)),
    "the texts of a group": (ALL, _runs(lambda texts: ",".join(texts))),
}


@pytest.mark.parametrize("name", GOOD)
def test_correct_code_is_not_accused(name: str) -> None:
    """No false alarm; ``test_no_false_alarm.py`` draws a thousand queries."""
    sql, function = GOOD[name]
    law_of(sql, {"rides": RIDES}, functions={"f": function}, examples=FEW)


@pytest.mark.parametrize(("window", "over"), list(zip(WINDOWS, ["", " OVER k"] * 2, strict=True)))
def test_queries_keep_the_law(window: str, over: str) -> None:
    """Levels 2 and 3 for windows, with and without OVER."""
    law_of(f"{SQL_OF_KEYS}, {window}".replace("{over}", over), {"rides": RIDES}, examples=1)


@pytest.mark.deep
def test_ten_queries_take_twenty_seconds() -> None:
    """With default settings. Processor time: the other interpreter computes at the same time, so it is what a quiet machine takes."""
    started_s = time.process_time()
    for number in range(10):
        law_of(f"{SQL_OF_KEYS}, {WINDOWS[number % len(WINDOWS)]}".replace("{over}", " OVER k" * (number % 2)), {"rides": RIDES})
    assert time.process_time() - started_s <= 20


def test_a_failure_is_a_small_case(tmp_path: Path) -> None:
    """It says what differed, and has the fewest events; ``test_case_law.py`` runs such cases."""
    sql = "SELECT k, COUNT(*) AS n INTO counts FROM rides TIMESTAMP BY at WHERE udf.f(k) = '0' GROUP BY k, TumblingWindow(second, 10)"
    with pytest.raises(LawBrokenError) as caught:
        law_of(sql, {"rides": RIDES}, functions={"f": FAULTS["number of the row in its batch"][1]}, case_folder=tmp_path / "case")
    assert "undisturbed it is" in caught.value.sentence
    assert len((tmp_path / "case/input.rides.ndjson").read_text().splitlines()) <= 2


class Appending:
    """A sink without idempotence."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        with (self.folder / f"{partition}.txt").open("ab") as file:
            for _, _, value in rows:
                file.write(value + b"\n")


class InPlace(Appending):
    """A sink whose reader sees half a sheet."""

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        with (self.folder / f"{span_start_us}.{partition}.txt").open("wb", buffering=0) as file:
            for _, _, value in rows:
                file.write(value + b"\n")


class ByTheClock(Appending):
    """A sink whose files are named by the time of writing."""

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        draft = self.folder / ".draft"
        draft.write_bytes(b"\n".join(value for _, _, value in rows))
        draft.rename(self.folder / f"{time.strftime('%Y')}{int(time.time()) // 1000}.{span_start_us}.{partition}.txt")


class Renamed(Appending):
    """A sink that keeps the law."""

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        draft = self.folder / f".{span_start_us}.{partition}"
        draft.write_bytes(b"\n".join(value for _, _, value in rows))
        draft.rename(self.folder / f"{span_start_us}.{partition}.txt")


@pytest.mark.parametrize("sink", [Appending, InPlace, ByTheClock])
def test_a_wrong_sink_is_found(sink: type[Appending]) -> None:
    """Published again, broken off, and at another time."""
    with pytest.raises(LawBrokenError):
        law_of(SinkUnderTest(sink))


def test_a_right_sink_is_not_accused() -> None:
    """The contract of sinks/base.py."""
    law_of(SinkUnderTest(Renamed))
