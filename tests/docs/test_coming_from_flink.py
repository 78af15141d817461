"""Each script of docs/queries/coming-from-flink.md gives what DuckDB gives; each statement of Flink SQL there is refused with advice."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import typer
from support.repository import ROOT
from typer.testing import CliRunner

from ordering.errors import QueryError
from query.commands.local import local
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.observe.console import report_errors

sys.path.insert(0, str(ROOT / "benchmarks"))  # its modules import each other by name

from nexmark.generator import FIRST_MS, Made, write_files, write_side
from nexmark.judge import Judge

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(local))
PAGE = (ROOT / "docs" / "queries" / "coming-from-flink.md").read_text("utf-8")
SCRIPTS = {re.findall(r"INTO (\w+)", text)[0]: text for text in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)}
FOREIGN = re.findall(r"```flink\n(.*?)```", PAGE, re.DOTALL)
DUE = {
    "tumbling": "SELECT auction, time_bucket(INTERVAL '10 s', dateTime) AS window_start, count(*) AS bids FROM bid GROUP BY ALL",
    "sessions": """WITH marked AS (SELECT *, dateTime - lag(dateTime) OVER b <= INTERVAL '10 s' AS goes_on FROM bid
            WINDOW b AS (PARTITION BY bidder ORDER BY dateTime)),
        numbered AS (SELECT *, count(*) FILTER (goes_on IS NOT TRUE) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM marked)
        SELECT bidder, count(*) AS bids, min(dateTime) AS first_bid, max(dateTime) + INTERVAL '10 s' AS session_end
        FROM numbered GROUP BY bidder, session""",
    "daily": "SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*) AS bids, max(price) AS highest FROM bid GROUP BY ALL",
    "categories": "SELECT b.auction, b.price, a.category FROM bid b JOIN auction a ON b.auction = a.id",
    "in_time": "SELECT a.id, b.price FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires",
    "labelled": "SELECT auction, 'label ' || auction AS label FROM bid WHERE auction < 1100",
    "last_bids": """SELECT auction, bidder, price FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction, dateTime::DATE ORDER BY dateTime DESC, tie) = 1""",
    "top_bids": """SELECT auction, price, row_number() OVER (PARTITION BY auction, dateTime::DATE ORDER BY price DESC, tie) AS rank
        FROM bid QUALIFY rank <= 3""",
    # LIMIT DURATION includes an event exactly as old, and of those of one time the earlier ones.
    "means": """SELECT b.bidder, avg(e.price) AS mean_price FROM bid b JOIN bid e
        ON e.bidder = b.bidder AND e.dateTime BETWEEN b.dateTime - INTERVAL '10 s' AND b.dateTime AND e.tie <= b.tie
        GROUP BY b.bidder, b.tie""",
    "conditions": """SELECT count(*) FILTER (price < 10000) AS cheap, count(DISTINCT bidder) FILTER (price >= 10000) AS bidders
        FROM bid GROUP BY dateTime::DATE""",
    "parts": """SELECT strftime(dateTime, '%H:%M') AS minute_of_day, regexp_extract_all(url, '&channel_id=([^&]*)', 1)[1] AS channel_id,
        string_split(url, '/')[4] AS dir FROM bid""",
}
"""What each script of the page must give, in DuckDB's words."""
ADVICE = {
    "TUMBLE": "TumblingWindow",
    "MAX(price) AS highest": "TumblingWindow(day, 1)",
    "INNER JOIN auction": "how far apart in time rows may be that match, at most 7d",
    "a.expires": "at most 7d",
    "SYSTEM_TIME": "leave it out",
    "ROW_NUMBER": "TopOne",
    "RANGE": "LIMIT DURATION",
    "FILTER": "CASE",
    "DATE_FORMAT": "SUBSTRING",
}
"""By a word of each of Flink's statements on the page: what the refusal names."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """Events of 40 seconds with a midnight in them, and labels for some auctions."""
    folder = tmp_path_factory.mktemp("events")
    labels = folder / "labels.ndjson"
    labels.write_text("".join(json.dumps({"id": number, "label": f"label {number}"}) + "\n" for number in range(1_100)))
    return write_files(Made(4_000, rate=100, first_ms=FIRST_MS + 86_380_000), "three", folder), labels


@pytest.mark.parametrize("output", SCRIPTS)
def test_each_script_gives_what_duckdb_gives(output: str, files: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    """Row by row; none of it is empty."""
    events, labels = files
    script = tmp_path / "q.sql"
    script.write_text(SCRIPTS[output])
    inputs = [f"{name}={events[name]}" for name in ("bid", "auction") if re.search(rf"(FROM|JOIN) {name}\b", SCRIPTS[output])]
    flags = [part for one in inputs for part in ("--input", one)] + (
        ["--reference", f"labels={labels}"] if "labels" in SCRIPTS[output] else []
    )
    told = CliRunner().invoke(APP, [str(script), *flags, "--strict", "--output-dir", str(tmp_path / "out")])
    assert told.exit_code == 0, told.stderr
    judge = Judge(events, write_side(tmp_path), threads=1)
    judge.connection.execute(f"CREATE TABLE due AS {DUE[output]}")
    found = judge.compare([tmp_path / "out" / f"{output}.ndjson"])
    assert found["due"] > 0
    assert (found["rows"], found["equal"], found["missing"]) == (found["due"], found["due"], 0)


@pytest.mark.parametrize("statement", FOREIGN)
def test_each_statement_of_flinks_is_refused_with_what_to_write(statement: str) -> None:
    """The fix or the example names the counterpart that the page shows."""
    inputs = [InputSchema("bid"), InputSchema("auction"), InputSchema("labels", is_reference=True)]
    with pytest.raises(QueryError) as refused:
        bind_script(parse_script(statement, "q.sql"), inputs)
    advice = next(advice for word, advice in ADVICE.items() if word in statement)
    assert advice in str(refused.value)


def test_each_script_and_statement_is_known() -> None:
    """A new one on the page gets its check here."""
    assert set(SCRIPTS) == set(DUE)
    assert len(FOREIGN) == len(ADVICE)
