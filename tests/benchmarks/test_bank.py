"""The bank of ``make bank`` at a small size and without services: its books balance at every instant, and its judge sees when not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.repository import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))  # its modules import each other by name

import bank

TRANSFERS = 20_000


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results that files of both sides give."""
    folder = tmp_path_factory.mktemp("bank")
    made = bank.transfers(TRANSFERS)
    for name, account, topic in (("debit", "giver", "debits"), ("credit", "taker", "credits")):
        payloads = [payload for piece in bank.side(made, name, account, 4) for payload in piece.value.to_pylist()]
        (folder / f"{topic}.ndjson").write_bytes(b"\n".join(payloads) + b"\n")
    (folder / "bank.sql").write_text(bank.SCRIPT)
    (folder / "tidegate.toml").write_text(bank.SETTINGS.format(debits="d", credits="c", **{name: name for name in bank.OUTPUTS}))
    inputs = ["--input", "debits=debits.ndjson", "--input", "credits=credits.ndjson", "--reorder", "10s"]
    command = [sys.executable, "-m", "tidegate", "local", "bank.sql", *inputs, "--output-dir", "out", "--config", "tidegate.toml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def files_of(books: Path) -> dict[str, Path]:
    """Return the results of each output."""
    return {name: books / "out" / f"{name}.ndjson" for name in bank.OUTPUTS}


def test_the_sum_over_all_balances_is_0_at_every_instant(books: Path) -> None:
    """Law, level 3: debits and credits up to 10 s out of order, joined: nothing is ever booked on one side only."""
    verdict = bank.judged(bank.transfers(TRANSFERS), files_of(books), books)
    assert not any(verdict["wrong"].values()), verdict
    assert verdict["moves"] == 2 * TRANSFERS
    assert verdict["instants of balances"] > 60


@pytest.mark.parametrize(("output", "field"), [("balances", "balance"), ("total", "total"), ("changes", "change")])
def test_the_judge_sees_a_cent_that_is_missing(books: Path, tmp_path: Path, output: str, field: str) -> None:
    """In whichever output, at one instant."""
    files = files_of(books)
    lines = files[output].read_text().splitlines()
    row = json.loads(lines[len(lines) // 2])
    lines[len(lines) // 2] = json.dumps({**row, field: row[field] - 1})
    files[output] = tmp_path / f"{output}.ndjson"
    files[output].write_text("\n".join(lines))
    assert any(bank.judged(bank.transfers(TRANSFERS), files, tmp_path)["wrong"].values())
