"""How a command shows what it does: a live line on a terminal, JSON for programs."""

from __future__ import annotations

import io
import json
import logging

import pytest
import typer
from rich.console import Console

from ordering.errors import TidegateError
from tidegate.platform.observe import logs
from tidegate.platform.observe.console import end_line, live_line, print_json, report_error, report_errors
from tidegate.platform.observe.terminal import Terminal, TextColumn, TextTable


def test_without_a_terminal_nothing_is_drawn() -> None:
    """Logs and pipes get no progress bar."""
    out = io.StringIO()
    with live_line(Console(file=out, force_terminal=False), "ingest", total=10) as show:
        show("5 events", 5)
    assert out.getvalue() == ""


def test_a_line_for_programs_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Compact, sorted, flushed at once."""
    print_json({"b": 1, "a": {"y": 2, "x": [1]}})
    assert capsys.readouterr().out == '{"a":{"x":[1],"y":2},"b":1}\n'


def test_a_table_on_a_narrow_terminal_breaks_no_word() -> None:
    """Its rows become lines that are broken between words; on a wide one it is a table."""
    table = TextTable([TextColumn(name, is_folded=True) for name in ("job", "partition", "watermark", "driven by", "held")])
    table.add("taxis", "taxis-0", "2026-11-23T12:00:00.123456Z", "late floor", "1,331")
    table.add("", "  car-17", "2026-11-23T12:00:01.123456Z", "event", "-")
    shown = {}
    for width in (50, 120):
        out = io.StringIO()
        Terminal(Console(file=out, force_terminal=True, width=width, color_system=None)).table(table)
        shown[width] = out.getvalue()
    assert "job" in shown[120]
    assert "job" not in shown[50]
    words = {
        "taxis:",
        "taxis-0,",
        "2026-11-23T12:00:00.123456Z,",
        "late",
        "floor,",
        "1,331",
        "car-17,",
        "2026-11-23T12:00:01.123456Z,",
        "event",
    }
    assert words <= set(shown[50].split())


def test_into_a_pipe_the_last_line_is_logged_like_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs that read JSON lines read to the end; errors too are JSON then."""
    logs.configure("json")
    try:
        end_line(Terminal(Console(file=io.StringIO(), force_terminal=False)), "query q", "events 5")
        report_error(TidegateError("broken", code="TG-X"), as_json=False)
    finally:
        logging.getLogger().handlers.clear()
    last, error = map(json.loads, capsys.readouterr().err.splitlines())
    assert (last["event"], last["progress"], error["error"]["code"]) == ("query q ends", "events 5", "TG-X")


def test_an_error_that_cites_the_address_of_a_client_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients repeat what they were given. What the fix shows as a pattern stays as it is."""
    what = 'invalid dsn "postgresql://u:canary-1@h/d?password=canary-2": host=h password=canary-3 (tried redis://h/0?password=canary-4)'
    error = TidegateError(what, code="TG-STORE-DOWN", where="redis://:canary-5@h", fix="redis://[user:password@]host:port/db")
    for as_json in (False, True):
        report_error(error, as_json=as_json)
        shown = capsys.readouterr().err
        assert "canary" not in shown
        assert "redis://[user:password@]host:port/db" in shown


def test_a_traceback_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake of ours is told with its traceback, in which a library may cite what it was given."""

    def command() -> None:
        raise KeyError("cannot connect with {'password': 'canary-6'} to https://h/x?sig=canary-7")

    with pytest.raises(typer.Exit) as ended:
        report_errors(command)()
    assert ended.value.exit_code == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "KeyError" in shown
    assert "canary" not in shown.partition("KeyError: ")[2]
