"""
A checkpoint is bound to the settings and topic ids that it was made with.

Law: a job resumes from a checkpoint only with the settings that shaped its contents; a difference is refused
(docs/operate/starting.md#changing-a-query). A topic is identified by its id, not its name: a topic that was deleted and made again is
another topic. For settings that may grow, such as the number of input partitions, the bound value is a minimum.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from difflib import ndiff
from pathlib import Path

from ordering.errors import RefusedError
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.settings.load import Settings

_FILE = "settings.json"
TASKS = "spark.shuffle_partitions"
# Most lines of a difference of two plans that an error shows.
_LINES_SHOWN = 12
_ABSENT = object()


def bind(folder: Path, settings: Mapping[str, str], may_grow: Collection[str] = ()) -> None:
    """
    Bind a job's checkpoint folder (made when missing) to *settings*, or check that it is bound to them.

    The settings named in *may_grow* may grow: a number may rise, a JSON object may gain names. The new value is then bound. Raises
    RefusedError: other settings differ.
    """
    check_binding(read_binding(folder), settings, str(folder), may_grow)
    if read_binding(folder) == dict(settings):
        return
    # Readable by this user only: the files may contain payloads, and Spark's logs may contain anything.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(folder / _FILE, json.dumps(dict(settings), indent=1, sort_keys=True))


def check_binding(
    binding: Mapping[str, str] | None,
    settings: Mapping[str, str],
    where: str,
    may_grow: Collection[str] = (),
    *,
    way_out: str = "write to a new topic with a new checkpoint",
    example: str = "",
) -> None:
    """
    Check *settings* against *binding* (None: unbound), see :func:`bind`. Raises RefusedError, which names each setting that differs, and
    *way_out* of it.
    """
    changed = [] if binding is None else differences(binding, settings, may_grow)
    if changed:
        what = f"the checkpoint was made under other settings: {'; '.join(changed)}"
        fix = f"set them back, or {way_out}: results under two settings must not mix"
        raise RefusedError(what, code="TG-CHECKPOINT-SETTINGS", where=where, fix=fix, example=example)


def read_binding(folder: Path) -> dict[str, str] | None:
    """Return the settings that a job's checkpoint folder is bound to, None if there are none yet; RefusedError if they are damaged."""
    stored = read_json(folder / _FILE)
    return None if stored is None else dict(stored)


def with_bound_tasks(settings: Settings, binding: Mapping[str, str] | None) -> Settings:
    """
    Return *settings* with the number of tasks that the checkpoint is bound to, unless the user has set one. The default is the number of
    cores, and a job may move to another machine.
    """
    if binding is None or TASKS not in binding or "shuffle_partitions" in settings.spark.model_fields_set:
        return settings
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"shuffle_partitions": int(binding[TASKS])})})


def differences(before: Mapping[str, str], after: Mapping[str, str], may_grow: Collection[str] = ()) -> list[str]:
    """
    Return a text for each setting that differs, except growth of the settings in *may_grow*. Of long values, such as plans and objects,
    it has only what differs.
    """

    def may_differ(key: str) -> bool:
        return key in may_grow and key in before and key in after and _has_grown(before[key], after[key])

    return [
        f"{key}: {_describe_change(before.get(key, '(unset)'), after.get(key, '(unset)'))}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) and not may_differ(key)
    ]


def _describe_change(before: str, after: str) -> str:
    if "\n" in before + after:
        return _changed_lines(before, after)
    members = [_members(value) for value in (before, after)]
    if all(member is not None for member in members):
        old, new = (member or {} for member in members)
        names = [name for name in dict.fromkeys([*old, *new]) if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
        return ", ".join(f"{name} {_json(old, name)} -> {_json(new, name)}" for name in names)
    return f"{before} -> {after}"


def _changed_lines(before: str, after: str) -> str:
    """Return the lines that only one of two texts has, each after a minus (before) or a plus (after), in their order."""
    lines = [line for line in ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    shown = [f"{line[0]} {' '.join(line[1:].split())}" for line in lines[:_LINES_SHOWN]]
    more = f"\n  and {len(lines) - _LINES_SHOWN} more lines" if len(lines) > _LINES_SHOWN else ""
    return "".join(f"\n  {line}" for line in shown) + more


def _members(value: str) -> dict[str, object] | None:
    """Return the members of a JSON object; None if *value* is no such object."""
    try:
        members = json.loads(value)
    except ValueError:
        return None
    return members if isinstance(members, dict) else None


def _json(members: Mapping[str, object], name: str) -> str:
    return json.dumps(members[name]) if name in members else "(unset)"


def _has_grown(before: str, after: str) -> bool:
    before_value, after_value = json.loads(before), json.loads(after)
    if isinstance(before_value, dict):
        return bool(before_value.items() <= after_value.items())
    return bool(before_value <= after_value)


def check_same_topics(before: Mapping[str, str], current: Mapping[str, str], where: str, fix: str) -> None:
    """
    Compare topic ids (empty: the topic is gone) of names that both sides have. Raises RefusedError: a topic was deleted, or deleted and
    made again under its name (TG-TOPIC-RECREATED).
    """
    for name in sorted(before.keys() & current.keys()):
        if before[name] != current[name]:
            change = "deleted and made again: it is another topic under the same name" if current[name] else "deleted"
            ids = f"id {before[name]} -> {current[name] or 'none'}"
            raise RefusedError(f"topic {name} has been {change} ({ids})", code="TG-TOPIC-RECREATED", where=where, fix=fix)


def replace_text(file: Path, text: str, *, is_synced: bool = True) -> None:
    """Write a file atomically: it has its old or its new contents, never a part of them; if *is_synced*, after a power cut too."""
    # Several tasks may ask for the end of one batch at the same time: none takes another's draft away.
    draft = file.with_suffix(f".{os.getpid()}.new")
    with draft.open("w") as writing:
        writing.write(text)
        if is_synced:
            writing.flush()
            os.fsync(writing.fileno())
    draft.replace(file)


def checkpoint_folder(settings: Settings, job: str) -> Path:
    """Return the absolute path of one job's checkpoint folder: workers run in other folders."""
    return Path(settings.spark.checkpoint_dir).absolute() / job
