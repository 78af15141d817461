"""Nexmark in small: all 24 queries, in both layouts and all three orders, give what DuckDB gives, row by row."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from support.repository import ROOT
from typer.testing import CliRunner

from query.commands.local import local
from tidegate.platform.observe.console import report_errors

sys.path.insert(0, str(ROOT / "benchmarks"))  # its modules import each other by name

from nexmark.generator import FIRST_MS, KINDS, LAYOUTS, ORDERS, Made, pieces, write_files, write_side
from nexmark.judge import Judge
from nexmark.on_files import local_arguments
from nexmark.queries import judged, reads_arrivals, script, texts

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(local))
ALWAYS = ("one", "disordered"), ("three", "ties")
"""Each layout and each disorder, by turns one for each query; all others are for ``make test-deep``."""
QUERIES = list(texts("tidegate.sql"))
MADE = Made(20_000, rate=400, first_ms=FIRST_MS + 86_370_000)
"""50 seconds with a midnight in them: several windows, and two days."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the events of all tests."""
    return tmp_path_factory.mktemp("nexmark")


@pytest.fixture(scope="module")
def judges(folder: Path) -> object:
    """Judges of all files, each made once."""
    return cache(lambda layout, order, arrivals: Judge(*files(folder, layout, order, arrivals=arrivals), threads=1))


def files(folder: Path, layout: str, order: str, *, arrivals: bool) -> tuple[dict[str, Path], Path]:
    """Return the events' files, and the side input."""
    return write_files(dataclasses.replace(MADE, order=order), layout, folder, arrivals), write_side(folder)


@pytest.mark.parametrize(
    ("layout", "order", "name"),
    [
        pytest.param(
            layout, order, name, marks=() if (layout, order) == ALWAYS[at % 2] else pytest.mark.deep, id=f"{layout} {order} {name}"
        )
        for layout in LAYOUTS
        for order in ORDERS
        for at, name in enumerate(QUERIES)
    ],
)
def test_every_row_is_the_judges(name: str, order: str, layout: str, folder: Path, judges: object, tmp_path: Path) -> None:
    """No row is missing, none is more, none is different; no record is a dead letter (--strict)."""
    assert callable(judges)
    arrivals = reads_arrivals(name)
    made = dataclasses.replace(MADE, order=order)
    arguments = local_arguments(name, layout, made, *files(folder, layout, order, arrivals=arrivals), tmp_path / "results")
    told = CliRunner().invoke(APP, arguments)
    assert told.exit_code == 0, told.stderr
    judge = judges(layout, order, arrivals)
    judge.answer(name)
    found = judge.compare([tmp_path / "results" / f"{name}.ndjson"])
    assert found["due"] > 0
    assert (found["rows"], found["equal"], found["missing"], found["only_here"]) == (found["due"], found["due"], 0, 0)


def test_the_judge_sees_each_wrong_row(folder: Path, judges: object, tmp_path: Path) -> None:
    """A row that lacks, one that comes twice, and one with another value are three findings."""
    assert callable(judges)
    judge = judges("one", "ordered", False)
    judge.answer("q2")
    rows = [json.loads(line) for (line,) in judge.connection.execute("SELECT to_json(due) FROM due").fetchall()]
    wrong = [rows[1], rows[1], {**rows[2], "price": rows[2]["price"] + 1}, *rows[3:]]
    file = tmp_path / "wrong.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in wrong))
    due = len(rows)
    assert judge.compare([file]) == {"due": due, "rows": due, "equal": due - 2, "missing": 2, "only_here": 2}


def test_what_changes_leave_is_compared(folder: Path, judges: object, tmp_path: Path) -> None:
    """A row that came and was taken back again is no row; columns may be compared as rounded."""
    assert callable(judges)
    judge = judges("one", "ordered", False)
    judge.answer("q4")
    rows = [json.loads(line) for (line,) in judge.connection.execute("SELECT to_json(due) FROM due").fetchall()]
    early = {**rows[0], "final": 1.0}
    changes = [(None, early), (early, None), *((None, {**row, "final": int(row["final"])}) for row in rows)]
    file = tmp_path / "changes.ndjson"
    file.write_text("".join(json.dumps({"before": before, "after": after}) + "\n" for before, after in changes))
    found = judge.compare([file], changes=True, same="trunc(final) AS final")
    assert found == {"due": len(rows), "rows": len(rows), "equal": len(rows), "missing": 0, "only_here": 0}


def test_the_benchmarks_own_statements_have_the_judges_columns(folder: Path, judges: object) -> None:
    """In their order; else the results of the engines could not be compared."""
    assert callable(judges)
    judge = judges("one", "ordered", False)
    for name, text in texts("flink.sql").items():
        judge.answer(name)
        due = [str(column) for column, *_ in judge.connection.execute("DESCRIBE due").fetchall()]
        declared = text[text.index("CREATE TABLE results (") :].partition(";")[0]
        assert re.findall(r"[(,]\s*`?([a-zA-Z]\w*)`?\s", declared) == due, name


def test_the_same_events_are_made_each_time(tmp_path: Path) -> None:
    """Byte for byte; another seed makes others."""
    made = dataclasses.replace(MADE, order="disordered")
    first, again = (write_files(made, "one", tmp_path / name)["nexmark"].read_bytes() for name in ("first", "again"))
    other = write_files(dataclasses.replace(made, seed=2), "one", tmp_path / "other")["nexmark"].read_bytes()
    assert first == again != other


@pytest.mark.parametrize("order", ORDERS)
def test_events_have_the_benchmarks_proportions_and_order(order: str) -> None:
    """1 person, 3 auctions and 46 bids of 50; disorder within its bound, and some of it; ties at whole seconds."""
    made = Made(150_000, order, bound_ms=500)
    all_pieces = list(pieces(made))
    kind, time_ms, arrival_ms = (
        np.concatenate([getattr(piece, name) for piece in all_pieces]) for name in ("kind", "time_ms", "arrival_ms")
    )
    assert Counter(kind.tolist()) == {0: 3_000, 1: 9_000, 2: 138_000}
    assert (np.diff(arrival_ms) >= 0).all()
    late_ms = np.maximum.accumulate(time_ms) - time_ms
    assert (late_ms.max() > 400 and late_ms.max() <= 500) if order == "disordered" else late_ms.max() == 0
    assert (time_ms % 1_000 == 0).all() == (order == "ties")


def test_half_of_all_bids_are_on_hot_auctions_and_three_quarters_by_hot_bidders() -> None:
    """Ids are those of the benchmark: hot auctions are the first of each hundred, hot bidders the second."""
    bids = [
        json.loads(value) for piece in pieces(Made(50_000)) for value in piece.take(piece.kind == KINDS.index("bid")).flat().to_pylist()
    ]
    assert 0.49 < sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids) < 0.53
    assert 0.74 < sum(bid["bidder"] % 100 == 1 for bid in bids) / len(bids) < 0.78
    assert 0.48 < sum(bid["channel"] in ("Google", "Facebook", "Baidu", "Apple") for bid in bids) / len(bids) < 0.52
    assert min(bid["price"] for bid in bids) >= 100
    assert max(bid["price"] for bid in bids) <= 100_000_000


def test_each_query_has_a_judge_and_a_script_for_both_layouts() -> None:
    """All 24, without a placeholder left."""
    assert list(texts("duckdb.sql")) == QUERIES == [f"q{number}" for number in range(24)]
    for name in QUERIES:
        assert not {"{", "}"} & set(judged(name) + script(name, "one") + script(name, "three"))
