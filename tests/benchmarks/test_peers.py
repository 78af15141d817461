"""What the bench says of other engines: their results are counted beside Tidegate's, a run too long is ended and told as far as it came."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repository import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))  # its modules import each other by name

from filling import FIRST_ARRIVAL_MS, happened_until, made
from peers.asked import Asked
from peers.comparing import COLUMNS, _parsed, closed_until, compare
from running import FailedRun, measured

from tidegate.platform.kafka.records import Records

CLOSED_MS = 80_000
Window = tuple[str, int, int, float]


def windows(file: Path, rows: list[Window]) -> Path:
    """Write tumbling windows into a file."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    pq.write_table(pa.table(columns, schema=COLUMNS["tumbling"]), file)
    return file


def counts(folder: Path, expected: list[Window], found: list[Window], due: int | None = None) -> dict[str, int]:
    """Compare two lists of windows."""
    return compare("tumbling", windows(folder / "e", expected), windows(folder / "f", found), CLOSED_MS, folder, due)


def told(**more: int) -> dict[str, int]:
    """Return a comparison that found nothing but *more*."""
    return {**dict.fromkeys(("equal", "different", "missing", "missing_at_end", "only_here", "events_lost"), 0), **more}


def test_results_are_compared_by_key_and_window(tmp_path: Path) -> None:
    """A sum may differ in its last digits, a count not; what only one side has is told by which side that is."""
    expected = [("a", 10_000, 3, 1.5), ("a", 20_000, 4, 2.0), ("a", 30_000, 1, 1.0), ("a", 99_000, 1, 1.0)]
    found = [("a", 10_000, 3, 1.5 + 1e-12), ("a", 20_000, 3, 1.9), ("b", 20_000, 1, 0.1)]
    findings = {"equal": 1, "different": 1, "missing": 1, "missing_at_end": 1, "only_here": 1}
    assert counts(tmp_path, expected, found) == told(**findings, events_lost=1)
    assert counts(tmp_path, expected, found, due=9) == told(**findings, events_lost=2)


def test_a_result_that_comes_twice_is_not_the_result(tmp_path: Path) -> None:
    """Who adds up results would count it twice."""
    assert counts(tmp_path, [("a", 10_000, 3, 1.5)], [("a", 10_000, 3, 1.5)] * 2)["different"] == 1


def test_a_peer_without_results_misses_all(tmp_path: Path) -> None:
    """Nothing found is found out."""
    assert counts(tmp_path, [("a", 10_000, 3, 1.5)], []) == told(missing=1, events_lost=3)


def test_events_are_due_in_windows_that_every_engine_has_closed() -> None:
    """Of 60 s of events, those until 40 s: windows that end later may wait for events that never come."""
    closed_ms = closed_until(60_000)
    assert closed_ms == FIRST_ARRIVAL_MS + 40_000
    events = made(0, 60_000, 4).value.to_pylist()
    assert happened_until(closed_ms, 60_000) == sum(json.loads(event)["ts"] <= closed_ms for event in events)


def test_ctis_are_no_results_and_the_windows_end_is_the_records_time() -> None:
    """Tidegate's results are records with keys; their payload does not repeat System.Timestamp."""
    value = pa.array([b'{"device":"a","n":2}', b"\x00\x02"], pa.binary())
    records = Records(np.arange(2), np.array([10_000, 11_000]), pa.array([b"a", None], pa.binary()), value)
    assert _parsed(records, COLUMNS["hopping"]).to_pylist() == [{"device": "a", "window_end": 10_000, "n": 2}]


def test_what_a_program_is_asked_for_survives_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with quotes and spaces too; only windows are shifted."""
    job = Asked("join", "host:1", ["a b", 'c"d'], "out", True, 2_000, 5, 2, [], "folder", 1)
    monkeypatch.setattr(sys, "argv", ["program", job.argument()])
    from peers.asked import asked

    assert asked() == job
    assert job.shift_ms == 0


def run(folder: Path, script: str, limit_s: float | None = None) -> tuple[int, bool]:
    """Run a script that has 100 events before it; return how many its run counts, and whether it came to its end."""
    found = measured("script", [sys.executable, "-c", script], 100, folder, dict(os.environ), limit_s)
    return found.events, found.ended


def alive(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for yet does not."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_run_without_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Its row tells how far it was."""
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']); "
    script = child + "open('pid', 'w').write(str(p.pid)); print('noise'); print('{\"events\": 7}', flush=True); p.wait()"
    started_s = time.monotonic()
    assert run(tmp_path, script, 2.0) == (7, False)
    assert time.monotonic() - started_s < 30
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_run_that_ends_in_time_counts_all_its_events(tmp_path: Path) -> None:
    """Whatever its last line said."""
    assert run(tmp_path, "print('{\"events\": 99}')", 60.0) == (100, True)


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    """The reason is the line that names the error, whatever follows it."""
    script = "import sys; print('{\"events\": 1}'); sys.exit('Traceback\\nsome.AnalysisException: [NO] not over a stream\\n+- plan')"
    with pytest.raises(FailedRun) as failed:
        run(tmp_path, script, 60.0)
    assert failed.value.reason == "some.AnalysisException: [NO] not over a stream"
