"""How long each file of tests takes: what takes longest is started first (``pytest --write-durations`` records it anew)."""

from __future__ import annotations

from collections.abc import Mapping

from support.repository import ROOT

DURATIONS = ROOT / "tests" / "durations.tsv"
"""Seconds and file, those that take longest first."""
_LEAST_S = 2.0


def read_durations() -> dict[str, float]:
    """Return seconds by file."""
    rows = (line.split("\t") for line in DURATIONS.read_text("utf-8").splitlines())
    return {file: float(seconds) for seconds, file in rows}


def write_durations(took_s: Mapping[str, float]) -> None:
    """Record what was measured, and keep what was not run this time."""
    every = {file: seconds for file, seconds in (read_durations() | took_s).items() if seconds >= _LEAST_S and (ROOT / file).exists()}
    lines = [f"{every[file]:.0f}\t{file}\n" for file in sorted(every, key=lambda file: (-every[file], file))]
    DURATIONS.write_text("".join(lines), "utf-8")
