"""
Every command shows keys, payloads and names that would command a terminal, and the terminal obeys none of them.

explain, compare and journal ask brokers: tests/integration/operations/test_hostile_text.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.hostile_text import HOSTILE, commands_in
from support.pseudo_terminal import run_on_terminal
from support.valkey_server import Server

from ordering.errors import RefusedError
from tidegate.basics.visible_text import visible
from tidegate.platform.observe.progress_store import ProgressPublisher, ProgressStore
from tidegate.platform.observe.reports import IngestReport

STYLE = re.compile(r"\x1b\[[0-9;]*m")
REPORT = {"topic": "raw", "partition": 0, "c": 10**15, "watermark_us": 10**15, "next_offset": 10, "at_ms": 1, "cause": HOSTILE, "held": 3}
SUBSTREAM = {"key": HOSTILE, "watermark_us": 9_000_000, "cause": "event", "held": 2, "held_from_us": 9_500_000}
# As much of it as stands in a result: JSON escapes its control characters itself, and half a character cannot be written.
WRITABLE = HOSTILE.replace("\ud800", "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Redis in which one job publishes hostile text wherever it can, and another one has failed with it."""
    made = Server(tmp_path_factory.mktemp("valkey"))
    with ExitStack() as running:
        failing = ProgressPublisher(made.settings(), "failed.ordered", every_s=0.01, input=HOSTILE)
        with pytest.raises(RefusedError), failing:
            failing.publish([IngestReport.of_dict(REPORT)])
            raise RefusedError(HOSTILE, code="TG-TOPIC-MISSING", where=HOSTILE, fix=HOSTILE)
        lives = running.enter_context(ProgressPublisher(made.settings(), "lives.ordered", every_s=0.01, input=HOSTILE))
        lives.publish([IngestReport.of_dict({**REPORT, "held_from_us": 5, "top": [SUBSTREAM]})])
        lives.update_job(state=HOSTILE, recovery={"in_words": HOSTILE})
        store = ProgressStore(made.settings())
        while not all((found := store.read(topic)) and found.partitions for topic in ("lives.ordered", "failed.ordered")):
            pass
        store.close()
        yield made
    made.kill()


def check(printed: str, *shown: str) -> None:
    """The terminal obeys nothing of it, and shows it all: also what comes after the first command in it."""
    assert commands_in(printed, on_terminal=True) == []
    unfolded = "".join(STYLE.sub("", printed).split())
    for text in shown:
        assert "".join(visible(text).split()) in unfolded, printed


@pytest.mark.parametrize("is_live", [False, True])
def test_watermarks(server: Server, tmp_path: Path, is_live: bool) -> None:
    """Once and live: names, states, causes, and the keys of substreams."""
    redis = {"TIDEGATE_REDIS__URL": f"redis://127.0.0.1:{server.port}/0"}
    if is_live:
        code, printed = run_on_terminal(tmp_path, "watermarks", "--substreams", interrupt_at="[/x]", **redis)
    else:
        code, printed = run_on_terminal(tmp_path, "watermarks", "--substreams", "--once", **redis)
    assert code == 0, printed
    check(printed)
    # A narrow column folds the key.
    assert "[/x]" in printed


def test_status(server: Server, tmp_path: Path) -> None:
    """How a job continued, and why one has failed."""
    (tmp_path / "tidegate.toml").write_text("[inputs.lives]\n[inputs.failed]\n")
    code, printed = run_on_terminal(tmp_path, "status", "lives", "failed", TIDEGATE_REDIS__URL=f"redis://127.0.0.1:{server.port}/0")
    assert code == 1
    check(printed, f"ingest failed: TG-TOPIC-MISSING: {HOSTILE}")


def test_config(tmp_path: Path) -> None:
    """Values and names of settings, in each format; and what a wrong one is told with."""
    (tmp_path / "tidegate.toml").write_text(f"[spark.conf]\n{json.dumps('spark.' + WRITABLE)} = {json.dumps(WRITABLE)}\n")
    for form in ("text", "json", "toml", "markdown"):
        code, printed = run_on_terminal(tmp_path, "config", "--format", form)
        assert code == 0
        check(printed)
        assert "[/x]" in printed
    (tmp_path / "tidegate.toml").write_text(f"[inputs.{json.dumps(WRITABLE)}]\nlate = {json.dumps(WRITABLE)}\n")
    code, printed = run_on_terminal(tmp_path, "config")
    assert code == 2
    check(printed)
    assert "[/x]" in printed


def test_order(tmp_path: Path) -> None:
    """Results on the terminal, the explanation of each event, what cannot be read, and the names of the fields that there are."""
    records = [{"at": f"2001-01-01T00:00:0{second}Z", "k": WRITABLE, WRITABLE: 1} for second in (3, 1, 5)]
    file = tmp_path / "a.ndjson"
    file.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records) + "\n")
    for flags in (("--over", "k", "--explain"), ("--over", "k"), ("--over", "missing")):
        code, printed = run_on_terminal(tmp_path, "order", str(file), "--timestamp-by", "at", "--arrival", "none", *flags)
        assert (code == 0) == ("missing" not in flags), printed
        check(printed)
        assert "[/x]" in printed
    file.write_text(WRITABLE.replace("\n", ""))
    _, printed = run_on_terminal(tmp_path, "order", str(file), "--timestamp-by", "at")
    check(printed)
    assert "TG-ORDER-UNREADABLE" in printed
    assert "[/x]" in printed


def test_local_and_lint(tmp_path: Path) -> None:
    """Results and dead records of a script on files; a script's own names and texts."""
    file = tmp_path / "a.ndjson"
    file.write_text(
        json.dumps({"at": "2001-01-01T00:00:01Z", "k": WRITABLE}, ensure_ascii=False) + "\n" + WRITABLE.replace("\n", "") + "\n"
    )
    good, bad = tmp_path / "good.sql", tmp_path / "bad.sql"
    good.write_text("SELECT k INTO out FROM a TIMESTAMP BY at")
    bad.write_text(f"SELECT [{WRITABLE}] FROM a; SELECT {WRITABLE}")
    code, printed = run_on_terminal(tmp_path, "local", str(good), "--input", f"a={file}")
    assert code == 0, printed
    check(printed)
    assert "[/x]" in printed
    for command in (("local", str(bad), "--input", f"a={file}"), ("lint", str(bad)), ("plan", str(bad))):
        _, printed = run_on_terminal(tmp_path, *command)
        check(printed)
        assert "Traceback" not in printed


def test_cases(tmp_path: Path) -> None:
    """Expected and found results that differ."""
    case = tmp_path / "case"
    case.mkdir()
    (case / "query.sql").write_text("SELECT k INTO out FROM a TIMESTAMP BY at")
    (case / "input.a.ndjson").write_text(json.dumps({"at": "2001-01-01T00:00:01Z", "k": WRITABLE}) + "\n")
    (case / "expected.out.ndjson").write_text(json.dumps({"k": f"other{WRITABLE}"}) + "\n")
    _, printed = run_on_terminal(tmp_path, "test", str(tmp_path))
    check(printed)
    assert "[/x]" in printed
