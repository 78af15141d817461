"""
A checkpoint is bound to the settings it was made under, and to the very topics.

Law: a job resumes from a checkpoint only under the settings that shaped what is in it; under any other it is refused
with the ways out, never silently mixed (spec section 6). A topic is its id, not its name: one that was deleted and made
again is another topic. What may grow, such as the partitions of an input, is bound to what it was at least.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from ordering.errors import RefusedError
from tidegate.settings.load import Settings

_FILE = "settings.json"


def bind(folder: Path, settings: Mapping[str, str], may_grow: Collection[str] = ()) -> None:
    """
    Bind a job's checkpoint folder to *settings*, or check that it is.

    Args:
        folder: The folder, made when missing.
        settings: What the job is made under, as text.
        may_grow: Names of settings whose number may rise, or whose JSON object may gain names; the folder is then bound to
            what they have become.

    Raises:
        RefusedError: It was made under other settings; each difference is named.
    """
    check_binding(read_binding(folder), settings, str(folder), may_grow)
    if read_binding(folder) == dict(settings):
        return
    # For this user only: the files in here show what events hold, and Spark's logs may show anything.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(folder / _FILE, json.dumps(dict(settings), indent=1, sort_keys=True))


def check_binding(
    binding: Mapping[str, str] | None,
    settings: Mapping[str, str],
    where: str,
    may_grow: Collection[str] = (),
) -> None:
    """
    Compare *settings* with what the checkpoint folder *where* is bound to, None if to nothing. Other arguments as for :func:`bind`.

    Raises:
        RefusedError: It was made under other settings; each difference is named.
    """
    changed = [] if binding is None else differences(binding, settings, may_grow)
    if changed:
        raise RefusedError(
            f"the checkpoint was made under other settings: {'; '.join(changed)}",
            code="TG-CHECKPOINT-SETTINGS",
            where=where,
            fix="set them back, or write to a new topic with a new checkpoint: results under two settings must not mix",
        )


def read_binding(folder: Path) -> dict[str, str] | None:
    """Return what a job's checkpoint folder is bound to, None if to nothing yet."""
    file = folder / _FILE
    return dict(json.loads(file.read_text())) if file.exists() else None


def differences(before: Mapping[str, str], after: Mapping[str, str], may_grow: Collection[str] = ()) -> list[str]:
    """Return each setting that is not the same in both, in words but for those that have grown and *may_grow*."""

    def is_fine(key: str) -> bool:
        return key in may_grow and key in before and key in after and _has_grown(before[key], after[key])

    return [
        f"{key}: {before.get(key, '(unset)')} -> {after.get(key, '(unset)')}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) and not is_fine(key)
    ]


def _has_grown(before: str, after: str) -> bool:
    before_value, after_value = json.loads(before), json.loads(after)
    if isinstance(before_value, dict):
        return bool(before_value.items() <= after_value.items())
    return bool(before_value <= after_value)


def check_same_topics(before: Mapping[str, str], current: Mapping[str, str], where: str, fix: str) -> None:
    """
    Compare the ids of topics with what they were; topics that only one side knows do not count.

    Args:
        before: Topic ids by name, as they were.
        now: As they are; empty where a topic is gone.
        where: What is bound to them.
        fix: The ways out.

    Raises:
        RefusedError: A topic was deleted, or deleted and made again under its name (TG-TOPIC-RECREATED).
    """
    for name in sorted(before.keys() & current.keys()):
        if before[name] != current[name]:
            change = "deleted and made again: it is another topic under the same name" if current[name] else "deleted"
            ids = f"id {before[name]} -> {current[name] or 'none'}"
            raise RefusedError(f"topic {name} has been {change} ({ids})", code="TG-TOPIC-RECREATED", where=where, fix=fix)


def replace_text(file: Path, text: str) -> None:
    """Write a file such that it is there wholly or not at all."""
    draft = file.with_suffix(".new")
    draft.write_text(text)
    draft.replace(file)


def checkpoint_folder(settings: Settings, job: str) -> Path:
    """Return the folder that holds everything one job must find again: Spark's checkpoint and what it is bound to."""
    return Path(settings.spark.checkpoint_dir) / job
