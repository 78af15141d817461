"""
How far a query has read its logs in a batch that stayed open: the driver writes it into the checkpoint's folder, for the planner and for
later starts. The offset that Spark has logged is a lower bound of it.

Law: the file counts for a start only if Spark has finished its batch, since a batch that is cut off runs again, and ends at its planned
range. What it says decides how much is read, and which records must still exist; where reading begins is in the state of each bucket.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.observe.reports import BucketReport

_FILE = "open_positions.json"


def keep_positions(folder: Path, reports: Iterable[BucketReport]) -> None:
    """Write how far all buckets have come, by the *reports* of a batch that stayed open; forget it after any other."""
    opened = [report for report in reports if report.open_batch >= 0]
    if not opened:
        (folder / _FILE).unlink(missing_ok=True)
        return
    stored = {"batch": opened[0].open_batch, "positions": least_offsets(opened)}
    replace_text(folder / _FILE, json.dumps(stored), is_synced=False)


def least_offsets(reports: Iterable[BucketReport]) -> dict[int, int]:
    """Return up to which offset all buckets that read a log have read it."""
    least: dict[int, int] = {}
    for report in reports:
        for log, offset in report.next_offsets.items():
            least[log] = min(least.get(log, offset), offset)
    return least


def read_to(folder: Path, positions: Mapping[int, int], last_batch: float) -> dict[int, int]:
    """Return *positions*, the next offset of each log that Spark has logged, raised to where open batches up to *last_batch* have read."""
    try:
        stored = json.loads((folder / _FILE).read_text())
        counts = stored["batch"] <= last_batch
        opened = {int(log): int(offset) for log, offset in stored["positions"].items()} if counts else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        opened = {}
    return {log: max(offset, opened.get(log, 0)) for log, offset in positions.items()}
