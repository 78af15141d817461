"""
Spark's own checkpoint: its planned and finished batches, and the offset at the end of each.

Spark does not document its folders and files (:mod:`tidegate.platform.spark.privates`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from tidegate.platform.spark.privates import COMMITS_FOLDER, METADATA_FILE, OFFSETS_FOLDER


def checkpoint_state(folder: Path) -> Literal["empty", "pending", "settled"]:
    """Return whether Spark has planned no batch (empty), has a batch to finish (pending), or has finished all batches (settled)."""
    planned, done = last_batches(folder)
    if planned < 0:
        return "empty"
    return "pending" if done < planned else "settled"


def last_batches(folder: Path) -> tuple[int, int]:
    """Return the numbers of the last planned and the last finished batch; -1 for none."""
    planned, done = (_last_batch(folder / "spark" / name) for name in (OFFSETS_FOLDER, COMMITS_FOLDER))
    return planned, done


def read_offset(folder: Path, batch: int) -> dict[str, Any] | None:
    """Return the source's offset at the end of a planned batch; None if Spark has deleted it or its file is not understood."""
    try:
        # Line 1 is a version, line 2 Spark's own properties, then one line for the offset of each source.
        stored = json.loads((folder / "spark" / OFFSETS_FOLDER / str(batch)).read_text().splitlines()[2])
    except (OSError, ValueError, IndexError):
        return None
    return stored if isinstance(stored, dict) else None


def damaged_log(folder: Path) -> Path | None:
    """Return a file whose absence or damage keeps Spark from going on; None if its logs are whole."""
    planned, done = last_batches(folder)
    spark = folder / "spark"
    newest = max(planned, done)
    if newest >= 0 and read_offset(folder, newest) is None:
        return spark / OFFSETS_FOLDER / str(newest)
    written = [spark / METADATA_FILE, spark / COMMITS_FOLDER / str(done)]
    return next((file for file in written if file.exists() and not file.stat().st_size), None)


def _last_batch(folder: Path) -> int:
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)  # noqa: PTH208  (each second: no Path for each file)
    except OSError:
        return -1
