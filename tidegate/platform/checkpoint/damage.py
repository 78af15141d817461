"""
Finds damage to a job's checkpoint folder after a power cut, on a full disk, or in an incomplete copy.
Law: a job never goes on from a part of a checkpoint. The folder is only a cache of the topics, so deleting it loses no result.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ordering.errors import RefusedError
from tidegate.platform.checkpoint.offset_log import checkpoint_state, damaged_log


def read_json(file: Path) -> Any:
    """Return the contents of a checkpoint's JSON file, None without a file. Raises RefusedError (TG-CHECKPOINT-DAMAGED): it is no JSON."""
    try:
        return json.loads(file.read_text()) if file.exists() else None
    except ValueError:
        raise _damaged_error(f"{file.name} is cut off or overwritten", file) from None


def check_whole(folder: Path, *, is_bound: bool) -> None:
    """Raise RefusedError (TG-CHECKPOINT-DAMAGED) if Spark's logs are incomplete, or the settings they are bound to are missing."""
    damaged = damaged_log(folder)
    if damaged is not None:
        raise _damaged_error(f"{damaged.relative_to(folder)} is missing or cut off", folder)
    if not is_bound and checkpoint_state(folder) != "empty":
        raise _damaged_error("Spark's files are there, but not the settings that they are bound to", folder)


def _damaged_error(reason: str, where: Path) -> RefusedError:
    fix = (
        "restore a whole copy of the job's checkpoint folder, or delete the folder: ingest then resumes from the CTIs of its ordered "
        "topic, a query, with --start last-stopped, from those of its result topic"
    )
    return RefusedError(f"the checkpoint is damaged: {reason}", code="TG-CHECKPOINT-DAMAGED", where=str(where), fix=fix)
