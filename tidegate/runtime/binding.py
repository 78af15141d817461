"""
A checkpoint is bound to the settings it was made under.

Law: a job resumes from a checkpoint only under the settings that shaped what is in it; under any other it is refused
with the ways out, never silently mixed (spec section 6).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ordering.errors import RefusedError

_FILE = "settings.json"


def bind(folder: Path, settings: Mapping[str, str]) -> None:
    """
    Bind a job's checkpoint folder to *settings*, or check that it is.

    Raises:
        RefusedError: It was made under other settings; each difference is named.
    """
    file = folder / _FILE
    if file.exists():
        changed = differences(json.loads(file.read_text()), settings)
        if changed:
            raise RefusedError(
                f"the checkpoint was made under other settings: {'; '.join(changed)}",
                code="TG-CHECKPOINT-SETTINGS",
                where=str(folder),
                fix="set them back, or write to a new topic with a new checkpoint: results under two settings must not mix",
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(dict(settings), indent=1, sort_keys=True))
    draft.replace(file)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return each setting that is not the same in both, in words."""
    return [
        f"{key}: {before.get(key, '(unset)')} -> {after.get(key, '(unset)')}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def checkpoint_state(folder: Path) -> Literal["empty", "pending", "settled"]:
    """Return whether Spark has planned nothing yet, has a batch to finish, or has finished all it planned."""
    planned, done = (_last_batch(folder / "spark" / name) for name in ("offsets", "commits"))
    if planned < 0:
        return "empty"
    return "pending" if done < planned else "settled"


def _last_batch(folder: Path) -> int:
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)
