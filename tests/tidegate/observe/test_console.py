"""How a command shows what it does: a live line on a terminal, JSON for programs."""

from __future__ import annotations

import io
import json
import logging

import pytest
from rich.console import Console

from ordering.errors import TidegateError
from tidegate.observe import logs
from tidegate.observe.console import end_line, live_line, print_json, report_error
from tidegate.observe.terminal import Column, Terminal, TextTable


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
    table = TextTable([Column(name, is_folded=True) for name in ("job", "partition", "watermark", "driven by", "held")])
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
