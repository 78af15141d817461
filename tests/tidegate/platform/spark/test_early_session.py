"""What workers log is logged again by the driver, under the same logger."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidegate.platform.spark.early_session import WORKER_LOG_BYTES_MAX, WorkerLog
from tidegate.platform.spark.starting import WORKER_LOG

LINES = (
    b'{"event": "nothing planned", "level": "warning", "logger": "query.planner", "time": "2001-01-01T00:00:00Z", "topic": "t"}\n'
    b"26/11/21 13:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library\n"
    b'{"no level": 1}\n'
    b'{"broken\n'
    b'{"level": "shout", "event": "x"}\n'
    b'{"event": "the journal answers again", "level": "info"}\n'
)


def heard(log: WorkerLog) -> list[dict[str, object]]:
    """The events that following gives."""
    with capture_logs() as events:
        log.follow()
    return [{name: value for name, value in event.items() if name != "logger"} for event in events]


@pytest.mark.parametrize("cut", [0, 1, 60, len(LINES) - 1, len(LINES)])
def test_what_workers_logged_is_said_again_once(tmp_path: Path, cut: int) -> None:
    """Only whole lines that are events count, however the file grows; what the JVM says stays in the file."""
    log, file = WorkerLog(tmp_path), tmp_path / WORKER_LOG
    assert heard(log) == []
    file.write_bytes(LINES[:cut])
    first = heard(log)
    with file.open("ab") as rest:
        rest.write(LINES[cut:])
    assert first + heard(log) == [
        {"event": "nothing planned", "log_level": "warning", "topic": "t"},
        {"event": "the journal answers again", "log_level": "info"},
    ]
    assert heard(log) == []


def test_what_an_earlier_run_logged_is_not_said_again(tmp_path: Path) -> None:
    """Following begins at the file's end as it is at the start."""
    (tmp_path / WORKER_LOG).write_bytes(LINES)
    assert heard(WorkerLog(tmp_path)) == []


def test_a_log_that_grows_for_ever_is_cut_and_still_heard(tmp_path: Path) -> None:
    """Workers append to an open file: after the cut their next lines stand at its beginning."""
    log = WorkerLog(tmp_path)
    with (tmp_path / WORKER_LOG).open("ab", buffering=0) as file:
        file.write(b"chatter of Spark\n" * (WORKER_LOG_BYTES_MAX // 17 + 1))
        assert heard(log) == []
        assert (tmp_path / WORKER_LOG).stat().st_size == 0
        file.write(LINES)
        assert len(heard(log)) == 2


@pytest.mark.parametrize("written", [0, 30])
def test_a_line_that_a_worker_writes_while_the_log_is_cut_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The line comes after the driver has read the file, or half of it before: the file is not cut until all of it is logged."""
    log, line = WorkerLog(tmp_path), LINES.splitlines(keepends=True)[-1]
    with (tmp_path / WORKER_LOG).open("ab", buffering=0) as file:
        file.write(b"chatter of Spark\n" * (WORKER_LOG_BYTES_MAX // 17 + 1) + LINES[: LINES.index(b"\n") + 1] + line[:written])
        log_event = log._log_event

        def log_while_written(event: bytes) -> None:
            log_event(event)
            file.write(line[written:])
            monkeypatch.undo()

        monkeypatch.setattr(log, "_log_event", log_while_written)
        assert [event["event"] for _ in range(2) for event in heard(log)] == ["nothing planned", "the journal answers again"]
    assert (tmp_path / WORKER_LOG).stat().st_size == 0
