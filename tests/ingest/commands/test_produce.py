"""``tidegate produce``: the sample of README, and what it refuses. ``tests/tidegate/platform/stack/test_embedded.py`` has it with a
broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ingest.commands.raw_topic import produce
from ingest.commands.sample import sample_history, sample_live
from ordering.model.step import Batch, Model
from ordering.policies import Policies
from ordering.ticks import HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US
from tidegate.platform.observe.console import report_errors

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(produce))


@pytest.mark.parametrize("now_us", [1_700_000_000_123_456, 1_900_000_000 * SECOND_US])
def test_the_sample_keeps_readme_s_policies_whenever_it_is_made(now_us: int) -> None:
    """An hour up to now, stamped as it arrived: few events are late or out of order, none is early, and none lies ahead."""
    lines = list(sample_history(now_us))
    payloads = [json.loads(line.value) for line in lines]
    stamps_us = np.array([(line.timestamp_ms or 0) * MILLISECOND_US for line in lines])
    times_us = np.array([round(payload["at"] * 1e6) for payload in payloads])
    assert 1_750 < len(lines) <= 1_800
    assert (np.diff(stamps_us) >= 0).all()
    assert stamps_us[-1] <= now_us
    assert now_us - HOUR_US - SECOND_US <= times_us.min()
    assert now_us - times_us.max() < MINUTE_US
    assert {payload["car"].encode() for payload in payloads} == {line.key for line in lines}
    model = Model(Policies(early_us=5 * MINUTE_US, late_us=MINUTE_US, reorder_us=5 * SECOND_US), False, 1)
    batch = Batch(
        offset=np.arange(len(lines)),
        arrival_us=stamps_us,
        event_time_us=times_us,
        readable=np.ones(len(lines), dtype=np.bool_),
        substream=None,
        key=np.array([line.key for line in lines], dtype=object),
        value=np.array([line.value for line in lines], dtype=object),
        end_offset=len(lines),
    )
    counts = model.step(model.new_state(), batch).counts
    assert counts.early == 0
    assert 10 <= counts.late_adjusted <= 20


def test_the_live_sample_is_paced_by_the_clock_and_soon_breaks_a_policy() -> None:
    """A topic whose broker stamps the records gets them as they happen; the eighth one is two minutes late, and README explains it."""
    started_s = time.time_ns() // 1_000_000 / 1000
    lines = list(sample_live(3 * SECOND_US, lambda: False))
    ended_s = time.time()
    assert [line.key for line in lines] == [b"a", b"b"]
    assert all(line.timestamp_ms is None for line in lines)
    assert ended_s - started_s >= 2
    at_s = [json.loads(line.value)["at"] for line in lines]
    assert all(started_s + 2 * number - 4 <= at <= ended_s for number, at in enumerate(at_s)), at_s
    assert not list(sample_live(None, lambda: True)), "it ends when it is asked to"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["taxis"], "TG-SETTING-FLAG"),
        (["--sample", "a.ndjson", "taxis"], "TG-SETTING-FLAG"),
        (["a.ndjson", "taxis.ordered"], "TG-PRODUCE-OWN"),
        (["pretty.json", "taxis"], "TG-PRODUCE-FORM"),
        (["array.json", "taxis"], "TG-PRODUCE-FORM"),
        (["arrays.json", "taxis", "--set", "kafka.bootstrap=127.0.0.1:1"], "TG-KAFKA-UNREACHABLE"),
        (["--sample", "taxis", "--set", "kafka.bootstrap=127.0.0.1:1"], "TG-KAFKA-UNREACHABLE"),
    ],
)
def test_what_cannot_be_produced_is_refused(arguments: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordered topics are written by their stages alone."""
    monkeypatch.chdir(tmp_path)
    Path("tidegate.toml").write_text('[inputs.taxis]\ntimestamp_by = "at"\n')
    Path("pretty.json").write_text('{\n  "at": 1\n}\n{\n  "at": 2\n}\n')
    Path("array.json").write_text('[\n  {"at": 1},\n  {"at": 2}\n]\n')
    Path("arrays.json").write_text('[{"at": 1}, {"at": 2}]\n[{"at": 3}]\n')
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert code in result.output


def test_readme_s_query_counts_the_sample(tmp_path: Path) -> None:
    """What a new user types gives six fixes of each of five cars in nearly each minute."""
    blocks = re.findall(r"```sql\n(.*?)```", (Path(__file__).parents[3] / "README.md").read_text(), re.DOTALL)
    (tmp_path / "rides.sql").write_text(blocks[0])
    (tmp_path / "taxis.ndjson").write_bytes(b"\n".join(line.value for line in sample_history(1_900_000_000 * SECOND_US)))
    command = [sys.executable, "-m", "tidegate", "local", "rides.sql", "--input", "taxis=taxis.ndjson"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    results = [json.loads(line) for line in shown.stdout.splitlines()]
    fixes = Counter(result["fixes"] for result in results)
    assert {result["car"] for result in results} == set("abcde")
    assert fixes[6] > 250, "one fix in a hundred comes two minutes late, and counts in another minute"
    assert len(results) < 310
