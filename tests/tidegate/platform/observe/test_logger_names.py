"""The names of loggers are listed, documented, and the only ones used."""

from __future__ import annotations

import re
from typing import get_args

from support.repository import ROOT

from tidegate.platform.observe.logs import LoggerName


def test_every_logger_has_a_documented_name() -> None:
    """A name that follows its file would change when the file moves; programs filter by it."""
    names = {name for part in get_args(LoggerName) for name in get_args(part)}
    page = (ROOT / "docs" / "operate" / "metrics.md").read_text("utf-8").partition("## Loggers")[2]
    assert set(re.findall(r"`([a-z_.]+)`", "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `")))) == names
    used = set()
    for package in ("ingest", "query", "sinks", "tidegate"):
        for path in (ROOT / package).rglob("*.py"):
            used |= set(re.findall(r"get_logger\(([^,()]*)", path.read_text("utf-8")))
    used -= {"", 'name: LoggerName = "tidegate"', "name", "event.pop"}
    assert {name.strip('"') for name in used} <= names
