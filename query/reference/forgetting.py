"""
Deletes the copies of reference data in a checkpoint's folder that no lookup can need any longer. With every batch each bucket reports the
instant from which on it may still look rows up, and how many versions it knows.
Law: only reports of earlier batches count, since the present one may be repeated, and of them the least. Of the versions that all of them
knew, the one valid at that instant and all later ones are kept. So a repeated batch finds the same. Copies are deleted when a job starts,
while nothing reads them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ordering.ticks import NEVER
from query.reference.watch import FOLDER, LIST_FILE, TakenVersions
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.observe.reports import BucketReport, LooksUpFrom

FILE = "looked_up_from.json"
# Least time between two writes: only later starts read the file.
WRITE_S = 60.0


class LookupFloor:
    """Writes the instant from which on a job may still look rows up. It runs in the driver, which receives all reports."""

    def __init__(self, checkpoint: Path, buckets: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._file, self._buckets, self._clock_s = checkpoint / FOLDER / FILE, buckets, clock_s
        self._lookups: dict[int, LooksUpFrom] = {}
        self._next_s = clock_s()

    def accept_reports(self, reports: Iterable[BucketReport]) -> None:
        """Accept the reports of a batch: earlier batches are not repeated."""
        lookups = list(self._lookups.values()) if len(self._lookups) == self._buckets else []
        self._lookups |= {report.bucket: report.looks_up_from for report in reports if report.looks_up_from is not None}
        if lookups and self._clock_s() >= self._next_s:
            certain = {"us": min(each.us for each in lookups), "added": min(each.added for each in lookups)}
            replace_text(self._file, json.dumps(certain))
            self._next_s = self._clock_s() + WRITE_S


def forget_past_versions(checkpoint: Path) -> None:
    """Delete the copies that a checkpoint's run no longer needs; called at a start, before anything reads them."""
    versions = TakenVersions.read(checkpoint)
    if versions is None:
        return
    file = versions.folder / FILE
    floor = read_json(file)
    if floor is not None:
        remaining = drop_past_versions(versions, floor["us"], floor["added"])
        if remaining != versions:
            remaining.save()
            versions = remaining
    kept = {FILE, LIST_FILE, *(version.copy for version in versions.versions if versions.is_kept(version))}
    for copy in versions.folder.iterdir():
        if copy.name not in kept:
            copy.unlink()


def forget_all_versions(checkpoint: Path) -> None:
    """Begin a list of versions anew: what an earlier run has looked up says nothing of the next one's lookups."""
    for name in (LIST_FILE, FILE):
        (checkpoint / FOLDER / name).unlink(missing_ok=True)


def drop_past_versions(versions: TakenVersions, lookup_from_us: int, added: int) -> TakenVersions:
    """Return the versions without those needed only below *lookup_from_us*; only the initial and the first *added* ones count."""
    kept_from = dict(versions.kept_from)
    for version in versions.versions[: versions.initial_count + added]:
        if version.effective_us <= lookup_from_us:
            kept_from[version.table] = max(kept_from.get(version.table, NEVER), version.effective_us)
    return replace(versions, kept_from=kept_from)
