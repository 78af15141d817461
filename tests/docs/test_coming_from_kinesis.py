"""Each script of docs/queries/coming-from-kinesis.md gives what DuckDB or a second computation gives; Kinesis' own are refused."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean, pstdev
from typing import Any

import duckdb
import pytest
import typer
from support.chance import dice_of
from support.repository import ROOT
from typer.testing import CliRunner

from ordering.errors import QueryError
from query.commands.local import local
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.observe.console import report_errors

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(local))
PAGE = (ROOT / "docs" / "queries" / "coming-from-kinesis.md").read_text("utf-8")
SCRIPTS = {re.findall(r"INTO (\w+)", text)[0]: text for text in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)}
FOREIGN = re.findall(r"```kinesis\n(.*?)```", PAGE, re.DOTALL)
MINUTE = "time_bucket(INTERVAL '1 minute', event_time)"
DUE = {
    "big_trades": f"SELECT ticker, count(*) AS trades, sum(amount) AS amount FROM trades WHERE amount >= 500 GROUP BY ticker, {MINUTE}",
    "extremes": f"SELECT ticker, {MINUTE} AS minute_start, min(price) AS lowest, max(price) AS highest FROM trades GROUP BY ALL",
    "complete": f"SELECT {MINUTE} AS minute_start, ticker, count(*) AS trades FROM trades GROUP BY ALL",
    "means": """SELECT ticker, price, avg(price) OVER last AS mean_price,
            CASE WHEN lag(event_time) OVER before >= event_time - INTERVAL '1 minute' THEN lag(price) OVER before END AS price_before
        FROM trades
        WINDOW last AS (PARTITION BY ticker ORDER BY event_time RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND CURRENT ROW),
            before AS (PARTITION BY ticker ORDER BY event_time)""",
    "filled": """SELECT o.order_id, o.amount AS ordered, t.amount AS traded FROM orders o JOIN trades t ON o.order_id = t.order_id
        AND t.event_time BETWEEN o.event_time AND o.event_time + INTERVAL '1 minute'""",
    "unfilled": """SELECT o.order_id FROM orders o ANTI JOIN trades t ON o.order_id = t.order_id
        AND t.event_time BETWEEN o.event_time AND o.event_time + INTERVAL '1 minute'""",
    "named": "SELECT ticker, company, price FROM trades JOIN companies USING (ticker)",
    "most_traded": f"""SELECT ticker, count(*) AS trades FROM trades GROUP BY ticker, {MINUTE}
        QUALIFY row_number() OVER (PARTITION BY {MINUTE} ORDER BY count(*) DESC, ticker) <= 3""",
    "different": f"SELECT count(DISTINCT ticker) AS tickers FROM trades GROUP BY {MINUTE}",
    "hotspots": f"""SELECT floor(x / 0.5) * 0.5 AS x, floor(y / 0.5) * 0.5 AS y, count(*) AS points FROM places
        GROUP BY 1, 2, {MINUTE} HAVING count(*) >= 5""",
}
"""What each script of the page must give, in DuckDB's words."""
ADVICE = {
    "CREATE OR REPLACE": "WITH name AS (SELECT ...)",
    "GROUP BY ticker, STEP": "leave it out",
    "WINDOWED BY": "leave it out",
    "WINDOW last_minute": "leave it out",
    "JOIN trade_stream": "leave it out",
    "TOP_K_ITEMS_TUMBLING": "leave it out",
}
"""By a word of each of Kinesis' statements on the page: what the refusal names. All but the first begin with SELECT STREAM."""
INSIDE = {
    "SELECT a FROM i GROUP BY a, STEP(i.ROWTIME BY INTERVAL '1' MINUTE)": ("STEP", "TumblingWindow"),
    "SELECT a FROM i GROUP BY a, FLOOR(i.ROWTIME TO MINUTE)": ("FLOOR(... TO MINUTE)", "TumblingWindow"),
    "SELECT a FROM i WINDOWED BY STAGGER (PARTITION BY a RANGE INTERVAL '1' MINUTE)": ("WINDOWED BY", "TumblingWindow"),
    "SELECT AVG(a) OVER (PARTITION BY b RANGE INTERVAL '1' HOUR PRECEDING) FROM i": ("RANGE", "LIMIT DURATION"),
    "SELECT a FROM TABLE(RANDOM_CUT_FOREST(CURSOR(SELECT a FROM i)))": ("RANDOM_CUT_FOREST", "AnomalyDetection_SpikeAndDip"),
    "SELECT a FROM TABLE(HOTSPOTS(CURSOR(SELECT a FROM i), 1000, 0.2, 17))": ("HOTSPOTS", "cells"),
    "SELECT a FROM TABLE(TOP_K_ITEMS_TUMBLING(CURSOR(SELECT * FROM i), 'a', 3, 60))": ("TOP_K_ITEMS_TUMBLING", "TOP 3"),
    "SELECT a FROM TABLE(COUNT_DISTINCT_ITEMS_TUMBLING(CURSOR(SELECT * FROM i), 'a', 60))": (
        "COUNT_DISTINCT_ITEMS_TUMBLING",
        "COUNT(DISTINCT",
    ),
}
"""What is left when STREAM is: the word that is refused, and what the advice names."""
TICKERS = ("AMZN", "INTC", "MSFT", "ORCL", "TSLA")


def _time(second: float) -> str:
    return f"2024-05-01T12:{int(second // 60):02}:{second % 60:06.3f}Z"


def made_events(chance: Random) -> dict[str, list[dict[str, Any]]]:
    """Trades of ten minutes, one in each stretch of 1.5 s, with some odd prices; orders, and places with some dense cells."""
    trades, orders, places = [], [], []
    for number in range(400):
        second = number * 1.5
        price = round(chance.gauss(10_000, 100)) if number % 67 else 20_000
        amount, x = chance.randrange(1, 1_000), chance.randrange(64) / 8
        ticker = chance.choice(TICKERS)
        order = {"order_id": number, "ticker": ticker, "amount": amount, "event_time": _time(second)}
        if number % 4:
            later = second + chance.choice([0.001, 30, 59.999, 60, 60.001, 90])
            trades.append({**order, "price": price, "event_time": _time(later)})
        orders.append(order)
        dense = {"x": 2.25, "y": 3.0 + number % 4 / 8}
        places.append({**(dense if number % 3 == 0 else {"x": x, "y": chance.randrange(64) / 8}), "event_time": _time(second)})
    # One instant for each: windows over equal times would depend on how ties are broken.
    once = {trade["event_time"]: trade for trade in trades}
    return {"trades": [once[at] for at in sorted(once)], "orders": orders, "places": places}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The events, and the companies of some tickers."""
    folder = tmp_path_factory.mktemp("events")
    tables = made_events(dice_of("kinesis")) | {"companies": [{"ticker": name, "company": f"{name} Inc."} for name in TICKERS[:3]]}
    for name, rows in tables.items():
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {name: folder / f"{name}.ndjson" for name in tables}


def results_of(output: str, files: dict[str, Path], folder: Path) -> list[dict[str, Any]]:
    """Run a script of the page on the events."""
    script = folder / "q.sql"
    script.write_text(SCRIPTS[output])
    named = dict.fromkeys(re.findall(r"(?:FROM|JOIN) (trades|orders|places)\b", SCRIPTS[output]))
    flags = [part for name in named for part in ("--input", f"{name}={files[name]}")]
    flags += ["--reference", f"companies={files['companies']}"] if "companies" in SCRIPTS[output] else []
    told = CliRunner().invoke(APP, [str(script), *flags, "--strict", "--output-dir", str(folder / "out")])
    assert told.exit_code == 0, told.stderr
    return [json.loads(line) for line in (folder / "out" / f"{output}.ndjson").read_text().splitlines()]


@pytest.mark.parametrize("output", DUE)
def test_each_script_gives_what_duckdb_gives(output: str, files: dict[str, Path], tmp_path: Path) -> None:
    """Row by row, in any order; none of it is empty."""
    connection = duckdb.connect(":memory:")
    for name, path in files.items():
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_ndjson('{path}')")
    due = connection.execute(DUE[output])
    names = [column[0] for column in due.description or ()]
    rows = [dict(zip(names, map(_shown, row), strict=True)) for row in due.fetchall()]
    found = results_of(output, files, tmp_path)
    assert found
    assert sorted(map(_line, found)) == sorted(map(_line, rows))


def _shown(value: Any) -> Any:
    """A value of DuckDB's as results show it."""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _line(row: dict[str, Any]) -> str:
    # Keys that are whole numbers are written without a point: equal numbers are one key.
    return json.dumps({name: _plain(value) for name, value in row.items()}, sort_keys=True)


def test_the_odd_prices_are_those_of_the_formula(files: dict[str, Path], tmp_path: Path) -> None:
    """Kernels over the twenty trades of a ticker before each; computed once more with the normal distribution of the standard library."""
    due, history = [], dict[str, list[int]]()
    for line in files["trades"].read_text().splitlines():
        trade = json.loads(line)
        before = history.setdefault(trade["ticker"], [])[-20:]
        history[trade["ticker"]].append(trade["price"])
        if len(before) < 10:
            continue
        width = max(pstdev(before), 1e-6)
        above = fmean(1 - NormalDist(value, width).cdf(trade["price"]) for value in before)
        if min(above, 1 - above) <= 0.01:
            due.append({"ticker": trade["ticker"], "price": trade["price"]})
    assert len(due) >= 3
    assert results_of("odd_prices", files, tmp_path) == due


@pytest.mark.parametrize("statement", FOREIGN)
def test_each_statement_of_kinesis_is_refused_with_what_to_write(statement: str) -> None:
    """The fix names the counterpart, or where it stands."""
    advice = next(advice for word, advice in ADVICE.items() if word in statement)
    assert advice in refusal(statement)


@pytest.mark.parametrize(("statement", "told"), INSIDE.items())
def test_what_is_inside_a_statement_is_refused_by_its_name(statement: str, told: tuple[str, str]) -> None:
    """With its counterpart."""
    text = refusal(statement)
    assert [word for word in told if word not in text] == []


def refusal(statement: str) -> str:
    """What is said of a statement."""
    with pytest.raises(QueryError) as refused:
        bind_script(parse_script(statement, "q.sql"), [InputSchema("i", is_free=True)])
    return str(refused.value)


def test_each_script_and_statement_is_known() -> None:
    """A new one on the page gets its check here."""
    assert set(SCRIPTS) == {*DUE, "odd_prices"}
    assert len(FOREIGN) == len(ADVICE)
