"""What the demo of the flights prints for the user to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repository import ROOT


def test_the_last_hint_of_the_demo_runs_where_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder in which the demo was started, not in the one in which its jobs work."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "flights")
    import demo

    lake = tmp_path / ".tidegate" / "demo" / "out" / "lake" / "departures"
    lake.mkdir(parents=True)
    pq.write_table(pa.table({"origin": ["ATL"], "departures": [17]}), lake / "part.parquet")
    monkeypatch.chdir(tmp_path)
    shown = subprocess.run(demo.look_into(lake), shell=True, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "ATL" in shown
    assert "17" in shown
    assert sys.modules.pop("demo") is demo
