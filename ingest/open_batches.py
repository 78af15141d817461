"""
Open batches: with ``batch_span`` a batch stays open beyond its planned range, until its span is over or somebody asks for its end.

Law: an open batch is a row of ranges that the stage plans itself. Each is closed in the journal, and its facts are read there, before its
records are judged. So every replay repeats the same facts, wherever it is cut. How far a batch has come is in the stage's state; the offset
that Spark logs is a lower bound of it.

While a batch is open its tasks report in files there, once a second; the reports of Spark come at its end only.

The request to end a job's open batches is a small file in its checkpoint folder, which driver, planner and workers share. An open batch
ends once the file differs from what it was when the batch was planned, so no request is lost on the way.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.observe.reports import IngestReport

_END_FILE, _STOP_FILE, _REPORT = "end_batch", "stop_batches", "open_report_"


def request_end(folder: Path) -> None:
    """Ask for the end of the open batch of the job with this checkpoint *folder*; the next one may be planned."""
    replace_text(folder / _END_FILE, uuid.uuid4().hex, is_synced=False)


def request_stop(folder: Path) -> None:
    """Ask for the end of the open batch; no other is planned."""
    replace_text(folder / _STOP_FILE, "", is_synced=False)


def is_stopping(folder: Path) -> bool:
    """Return whether no further batch is to be planned."""
    return (folder / _STOP_FILE).exists()


def read_request(folder: Path) -> str:
    """Return the last request to end a batch; empty if there is none."""
    try:
        return (folder / _END_FILE).read_text()
    except OSError:
        return ""


def forget_stop(folder: Path) -> None:
    """Remove the request by which an earlier run of the job was stopped."""
    (folder / _STOP_FILE).unlink(missing_ok=True)


def write_report(folder: Path, report: IngestReport) -> None:
    """Tell the driver how far a range of an open batch has come."""
    replace_text(folder / f"{_REPORT}{report.number}.json", report.to_json(), is_synced=False)


class OpenReports:
    """The driver's view of the reports of open batches in a checkpoint *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen_ns = dict(self._changes())

    def read_new(self) -> list[IngestReport]:
        """Return the reports that were written since the last call."""
        reports = []
        for file, changed_ns in self._changes():
            if self._seen_ns.get(file) != changed_ns:
                self._seen_ns[file] = changed_ns
                with suppress(OSError, ValueError, KeyError, TypeError):
                    reports.append(IngestReport.of_json(file.read_text()))
        return reports

    def _changes(self) -> list[tuple[Path, int]]:
        changes = []
        with suppress(OSError):
            changes = [(file, file.stat().st_mtime_ns) for file in self._folder.glob(f"{_REPORT}*.json")]
        return changes
