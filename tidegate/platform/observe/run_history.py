"""
What has happened to the writer of a topic, run by run: starts, catch-ups, ends, failures, kills, refusals, changed settings.

It stands in the field ``history`` of the job's progress in Redis (:mod:`tidegate.platform.observe.progress_store`). Law: entries are kept
in their order, the newest of them; the same thing that happens again and again is one entry with a count. A run that was killed could not
say so: the next start writes it, with the time at which the run was last heard of. No result depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from tidegate.platform.observe.published_fields import FieldError, HistoryFields, JobFields, parse_field

# So many entries are kept, each text of so many characters.
ENTRIES_MAX, _TEXT_MAX = 200, 500


class Happened(StrEnum):
    """What happened."""

    STARTED = "started"
    CAUGHT_UP = "caught up"
    STOPPED = "stopped"
    FAILED = "failed"
    KILLED = "killed"
    REFUSED = "refused"
    SETTINGS = "settings changed"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry."""

    # When it happened, the last time, milliseconds.
    at_ms: int
    what: str
    more: str = ""
    # How often it happened, one time after the other.
    times: int = 1


def add_entry(entries: Sequence[HistoryEntry], entry: HistoryEntry) -> list[HistoryEntry]:
    """Return the entries with one more, or with the last one counted again."""
    entry = replace(entry, more=entry.more[:_TEXT_MAX])
    last = entries[-1] if entries else None
    if last is not None and (last.what, last.more) == (entry.what, entry.more) and entry.what != Happened.STARTED:
        return [*entries[:-1], replace(entry, times=last.times + 1)]
    return [*entries, entry][-ENTRIES_MAX:]


def merge_entries(histories: Iterable[Sequence[HistoryEntry]]) -> list[HistoryEntry]:
    """Return the entries of several histories in the order of time, the newest of them; what two have alike is there once."""
    every = dict.fromkeys(entry for entries in histories for entry in entries)
    return sorted(every, key=lambda entry: entry.at_ms)[-ENTRIES_MAX:]


def to_text(entries: Sequence[HistoryEntry], settings: Mapping[str, str]) -> str:
    """Return the field; *settings* are those of the last start, with which the next one compares its own."""
    return json.dumps({"entries": [asdict(each) for each in entries], "settings": dict(settings)}, separators=(",", ":"))


def describe_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the settings that differ, in words; empty if none does, or none were known."""
    if not before:
        return ""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {before.get(name, '(unset)')} -> {after.get(name, '(unset)')}" for name in names)


def entries_of(members: Sequence[Mapping[str, Any]]) -> list[HistoryEntry]:
    """Return the entries of a field that has been checked."""
    return [HistoryEntry(each["at_ms"], each["what"], each.get("more", ""), each.get("times", 1)) for each in members]


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """What earlier runs have left."""

    # The fields about the last job that has published.
    job: Mapping[str, Any]
    entries: list[HistoryEntry]
    # The settings of the last start.
    settings: Mapping[str, str]

    @property
    def last_ms(self) -> int:
        """When the last of it happened."""
        return max((entry.at_ms for entry in self.entries), default=0)


def parse_history(job_text: str | None, history_text: str | None) -> StoredHistory:
    """Return what the two fields of a job's progress say; what others have written there is no history."""
    job: Mapping[str, Any] = {}
    history: Mapping[str, Any] = {}
    with suppress(FieldError):
        job = parse_field(JobFields, job_text) if job_text else {}
    with suppress(FieldError):
        history = parse_field(HistoryFields, history_text) if history_text else {}
    return StoredHistory(job, entries_of(history.get("entries", ())), history.get("settings", {}))
