"""How a command shows what it does: a live line on a terminal, JSON for programs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tidegate.observe.console import live_line, print_json


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
