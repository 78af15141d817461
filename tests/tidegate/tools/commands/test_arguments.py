"""Arguments of commands that need servers: what is wrong with them is said before a server is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ingest.commands.journal import journal
from ingest.commands.raw_topic import produce
from ingest.commands.skip import skip
from tidegate.platform.observe.console import report_errors
from tidegate.tools.commands.explain import explain
from tidegate.tools.verify.command import verify

SETTINGS = """
kafka.bootstrap = "127.0.0.1:1"
inputs.events = { topic = "raw", timestamp_by = "at" }
outputs.counts = { topic = "counts" }
"""


@pytest.mark.parametrize(
    ("command", "arguments", "code"),
    [
        (explain, ["evnts", "raw-0@1"], "TG-SETTING-NAME"),
        (explain, ["events", "raw-0"], "TG-SETTING-PLACE"),
        (explain, ["events", "raw-0@1"], "TG-KAFKA-UNREACHABLE"),
        (journal, ["show", "evnts"], "TG-SETTING-NAME"),
        (skip, ["evnts"], "TG-SETTING-NAME"),
        (skip, ["events", "raw-0"], "TG-SETTING-PLACE"),
        (skip, ["counts"], "TG-SKIP-QUERY"),
        (verify, ["cuonts"], "TG-VERIFY-TARGET"),
        (verify, ["counts", "--since", "noon"], "TG-TICK-RANGE"),
        (verify, ["counts", "--query", "none.sql"], "TG-QUERY-FILE"),
        (produce, ["none.ndjson", "raw"], "TG-SETTING-FLAG"),
    ],
)
def test_a_server_that_is_away_hides_no_wrong_argument(
    command: Callable[..., None], arguments: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are away; only a command whose arguments are right says so."""
    monkeypatch.chdir(tmp_path)
    Path("tidegate.toml").write_text(SETTINGS)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(report_errors(command))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert code in result.output
    assert "Traceback" not in result.output
