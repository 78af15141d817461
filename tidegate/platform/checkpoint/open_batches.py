"""
Open batches, as driver, planner and workers of a job agree on them: with ``batch_span`` a batch goes on beyond its planned ranges, until
its span is over or its end is requested.

The request to end a job's open batch is a small file in its checkpoint folder, which all of them share. Law: an open batch ends once the
file differs from what it was when the batch was planned, so no request is lost on the way. A second file, of a stop, ends the open batch
too, and none is planned after it. While a batch is open its tasks report in files there, once a second, or four times while a client
watches; the reports of Spark come at its end only.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.offset_log import checkpoint_state

END_FILE = "end_batch"
_STOP_FILE, _REPORT = "stop_batches", "open_report_"
# The span of the first open batch of a job in a process, seconds.
_FIRST_SPAN_S = 1.0
# A batch in which nothing comes lasts so many times the span that is set, also where the first batches are shorter.
_SILENT_SPANS = 10
# How long a stop waits for the end of an open batch, seconds, and how often it looks.
_END_WITHIN_S, _LOOK_EVERY_S = 1.5, 0.02


class _Report(Protocol):
    """A report that names its batch, if that stays open; else -1."""

    @property
    def open_batch(self) -> int: ...


Report = TypeVar("Report", bound=_Report)


class GrowingSpans:
    """
    How long the open batches of a job last in this process: each twice as long as the one before, up to the span that is set.

    Between two batches records wait for Spark's JVM, which needs three times as long for the first as for the sixth: by then it has
    compiled what it runs there. So the first batches are short: the slow ends come within the first seconds after a start, or after the
    first record, since a batch without records is as long as any later one.
    """

    def __init__(self) -> None:
        self._next_s = _FIRST_SPAN_S

    def take(self, span_s: float, now_s: float) -> OpenSpan:
        """Return the span of a batch that begins now, for one of its tasks; *span_s* is the span that is set, seconds."""
        taken_s, self._next_s = min(self._next_s, span_s), 2 * self._next_s
        return OpenSpan(taken_s, _SILENT_SPANS * span_s, now_s)


class OpenSpan:
    """
    When an open batch of one task is over: a span after the first record that it has read. If none comes, there is little to repeat, and
    each end would cost Spark's JVM a sixth of a CPU second: such a batch lasts *silent_s*. A task with records ends the batch of all.
    """

    def __init__(self, span_s: float, silent_s: float, now_s: float) -> None:
        self._span_s, self._end_s, self._has_read = span_s, now_s + silent_s, False

    def is_over(self, now_s: float, *, has_read: bool) -> bool:
        """Return whether the batch is over; *has_read*: whether the task has read a record in this batch."""
        if has_read and not self._has_read:
            self._has_read, self._end_s = True, min(self._end_s, now_s + self._span_s)
        return now_s >= self._end_s


def request_end(folder: Path) -> None:
    """Ask for the end of the open batch of the job with this checkpoint *folder*; the next one may be planned."""
    replace_text(folder / END_FILE, uuid.uuid4().hex, is_synced=False)


def request_stop(folder: Path) -> None:
    """Ask for the end of the open batch; no other is planned."""
    replace_text(folder / _STOP_FILE, "", is_synced=False)
    if read_request(folder):
        # Whoever waits for a request to end wakes, and looks for this one too.
        request_end(folder)


def is_stopping(folder: Path) -> bool:
    """Return whether no further batch is to be planned."""
    return os.path.exists(f"{folder}/{_STOP_FILE}")  # noqa: PTH110  (many times a second: a Path costs five times as much)


def read_request(folder: Path) -> str:
    """Return the last request to end a batch; empty if there is none."""
    try:
        with open(f"{folder}/{END_FILE}") as request:  # noqa: PTH123  (as above)
            return request.read()
    except OSError:
        return ""


def forget_stop(folder: Path) -> None:
    """Remove the request by which an earlier run of the job was stopped."""
    (folder / _STOP_FILE).unlink(missing_ok=True)


def stop_and_wait(folder: Path) -> None:
    """Let the open batch end, and wait until Spark has committed it; one that does not end soon is cut off by whoever stops the job."""
    request_stop(folder)
    deadline_s = time.monotonic() + _END_WITHIN_S
    while checkpoint_state(folder) == "pending" and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)


def write_report(folder: Path, number: int, report: str) -> None:
    """Tell the driver how far range or bucket *number* of an open batch has come; the *report* is JSON."""
    replace_text(folder / f"{_REPORT}{number}.json", report, is_synced=False)


class OpenReports(Generic[Report]):
    """The driver's view of the reports of open batches in a checkpoint *folder*, each read from its JSON by *parse*."""

    def __init__(self, folder: Path, parse: Callable[[str], Report]) -> None:
        self._folder, self._parse = folder, parse
        self._seen_ns = dict(self._changes())
        # The last open batch whose end was reported.
        self._ended_batch = -1

    def end(self, reports: Iterable[Report]) -> None:
        """Note that batches have ended, by the *reports* at their end: what their tasks have told before is outdated."""
        self._ended_batch = max([self._ended_batch, *(report.open_batch for report in reports)])

    def read_new(self) -> list[Report]:
        """Return the reports of batches that are open, as far as they were written since the last call."""
        reports = []
        for file, changed_ns in self._changes():
            if self._seen_ns.get(file) != changed_ns:
                self._seen_ns[file] = changed_ns
                with suppress(OSError, ValueError, KeyError, TypeError):
                    reports.append(self._parse(file.read_text()))
        return [report for report in reports if report.open_batch > self._ended_batch]

    def _changes(self) -> list[tuple[Path, int]]:
        changes = []
        with suppress(OSError):
            changes = [(file, file.stat().st_mtime_ns) for file in self._folder.glob(f"{_REPORT}*.json")]
        return changes
