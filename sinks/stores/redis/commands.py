"""
Turns results into the commands of one script: keys, and for each key the arguments of a command.

Law: of several rows with one key only the last is written. Two keys are equal only if all columns of ``primary_key`` are: if these are
several, ``:`` and ``%`` within a value are written ``%3A`` and ``%25``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinks.stores.base import Progress, Refusal, Rows, RowsRefused
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings
from tidegate.records.result_columns import members

# By kind: the command, and the type that the command TYPE returns for the key.
COMMANDS = {"hash": ("HSET", "hash"), "string": ("SET", "string"), "stream": ("XADD", "stream"), "sorted_set": ("ZADD", "zset")}

# A field of the progress hash that belongs to no partition.
DISK_FIELD = "disk"

Argument = str | bytes


@dataclass(slots=True)
class Write:
    """One command: its key, its arguments after the key, and the positions of all rows with this key."""

    key: str
    arguments: list[Argument]
    positions: list[int]


def progress_key(prefix: str) -> str:
    """Return the key of the hash that has the progress of each partition."""
    return f"{prefix}tidegate_progress"


def progress_field(topic: str, partition: int) -> str:
    """Return the field of that hash for one partition of a topic."""
    return f"{topic}-{partition}"


def parse_progress(text: str) -> Progress:
    """Return the progress that a field of the hash has as *text*."""
    position, offset, stream_id = text.split(" ", 2)
    return Progress(stream_id, int(position), int(offset))


def make_writes(rows: Rows, partition: int, settings: RedisStoreSettings, prefix: str) -> Sequence[Write]:
    """Return the commands for *rows*. Raises RowsRefused: a row has no key, no score, or no field at all."""
    writes: dict[object, Write] = {}
    for name, write in find_places(rows, partition, settings, prefix):
        known = writes.pop(name, None)
        writes[name] = Write(write.key, write.arguments, [*(known.positions if known else ()), *write.positions])
    return list(writes.values())


def find_places(rows: Rows, partition: int, settings: RedisStoreSettings, prefix: str) -> list[tuple[object, Write]]:
    """Return for each row its identity among the keys or members, and the command for it alone. Raises as :func:`make_writes`."""
    refusals: list[Refusal] = []
    places: list[tuple[object, Write]] = []
    for position, value in zip(rows.position.tolist(), rows.value.to_pylist(), strict=True):
        try:
            places.append(_find_place(value, position, partition, settings, prefix))
        except _NoPlace as error:
            refusals.append(Refusal(position, str(error)))
    if refusals:
        raise RowsRefused(refusals)
    return places


class _NoPlace(Exception):
    """A row cannot be written; the text says why."""


def _find_place(value: bytes, position: int, partition: int, settings: RedisStoreSettings, prefix: str) -> tuple[object, Write]:
    """Return the identity of a row, and the command for it."""
    fields = dict(_fields(value))
    if settings.kind == "stream":
        if not fields:
            raise _NoPlace("all columns are NULL, and an entry needs a field")
        # 0-0 is no id, so ids begin at 1.
        return position, Write(f"{prefix}{partition}", [f"{position + 1}-0", *_flat(fields)], [position])
    name = _key_text(fields, settings.primary_key)
    if settings.kind == "sorted_set":
        score = fields.get(str(settings.score))
        if score is None:
            raise _NoPlace(f"{settings.score} is NULL, and a member needs a score")
        return name, Write(f"{prefix}by_{settings.score}", [score, name], [position])
    key = prefix + name
    if key == progress_key(prefix):
        raise _NoPlace(f"its key {key} is that of the progress")
    return name, Write(key, [value] if settings.kind == "string" else _flat(fields), [position])


def _fields(value: bytes) -> Iterator[tuple[str, str]]:
    """Yield name and text of the columns that are not NULL; a value that is no text is written as JSON."""
    for name, member, text in members(value.decode("utf-8")):
        if member is not None:
            yield name, member if isinstance(member, str) else text


def _flat(fields: Mapping[str, str]) -> list[Argument]:
    return [part for field in fields.items() for part in field]


def _key_text(fields: Mapping[str, str], columns: Sequence[str]) -> str:
    missing = [column for column in columns if column not in fields]
    if missing:
        raise _NoPlace(f"{missing[0]}, of primary_key, is NULL")
    if len(columns) == 1:
        return fields[columns[0]]
    return ":".join(fields[column].replace("%", "%25").replace(":", "%3A") for column in columns)
