"""
Forgetting reference data: copies in a checkpoint's folder in which no row can be looked up any more.

Each bucket reports with every batch from which instant on it may still look rows up, and how many versions it knows. Law: only
reports of batches before the present one count, since that may be run again, and of them the least. Of the versions that all of
them knew, the one valid at that instant is kept, and so are all later ones. So a batch that is run again finds what it found.
Copies are deleted when a job starts, while nothing reads them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordering.ticks import NEVER
from query.reference.watch import FOLDER, LIST_FILE, TakenVersions
from tidegate.checkpoint.binding import replace_text

FILE = "looked_up_from.json"
# In the reports of buckets: the instant, microseconds, and how many versions that came since the run was begun are known.
LOOKS_UP_FROM = "looks_up_from"
# Least time between two writes: it is for later starts.
WRITE_S = 60.0


class LookupFloor:
    """Writes from which instant on a job may still look rows up; in the driver, which receives all reports."""

    def __init__(self, checkpoint: Path, buckets: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._file, self._buckets, self._clock_s = checkpoint / FOLDER / FILE, buckets, clock_s
        self._lookups: dict[int, tuple[int, int]] = {}
        self._next_s = clock_s()

    def accept_reports(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Accept the reports of a batch: those before it are of batches that are not run again."""
        lookups = list(self._lookups.values()) if len(self._lookups) == self._buckets else []
        self._lookups |= {int(report["bucket"]): tuple(report[LOOKS_UP_FROM]) for report in reports}
        if lookups and self._clock_s() >= self._next_s:
            certain = {"us": min(us for us, _ in lookups), "added": min(added for _, added in lookups)}
            replace_text(self._file, json.dumps(certain))
            self._next_s = self._clock_s() + WRITE_S


def forget_past_versions(checkpoint: Path) -> None:
    """Delete the copies that the run of a checkpoint no longer needs. Called at a start, before anything reads them."""
    versions = TakenVersions.read(checkpoint)
    if versions is None:
        return
    file = versions.folder / FILE
    if file.exists():
        floor = json.loads(file.read_text())
        remaining = drop_past_versions(versions, floor["us"], floor["added"])
        if remaining != versions:
            remaining.save()
            versions = remaining
    kept = {FILE, LIST_FILE, *(version.copy for version in versions.versions if versions.is_kept(version))}
    for copy in versions.folder.iterdir():
        if copy.name not in kept:
            copy.unlink()


def drop_past_versions(versions: TakenVersions, lookup_from_us: int, added: int) -> TakenVersions:
    """
    Return the versions without those in which no row is looked up from *lookup_from_us* on, microseconds.

    Only the first versions and so many *added* ones count; others may be too new.
    """
    kept_from = dict(versions.kept_from)
    for version in versions.versions[: versions.initial_count + added]:
        if version.effective_us <= lookup_from_us:
            kept_from[version.table] = max(kept_from.get(version.table, NEVER), version.effective_us)
    return replace(versions, kept_from=kept_from)
