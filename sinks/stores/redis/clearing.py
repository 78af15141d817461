"""
Deletes what results have made of keys, for ``tidegate reset --rows``: the keys of the rows, then that of their progress.

Law: nothing is deleted if another topic, or an output with a longer prefix, has its progress under the prefix, and no key of another type
is. The progress goes last, so a call that was cut off is seen to have something left to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import redis

from sinks.stores.base import shared_rows_error
from sinks.stores.redis.commands import COMMANDS, DISK_FIELD, progress_key
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings

# How many keys are looked at and deleted at once.
_PIECE = 1_000


def count_clearable(client: redis.Redis, settings: RedisStoreSettings, prefix: str, topic: str, where: str) -> int | None:
    """Return how many rows :func:`clear` would delete, None if it has nothing to do. Raises StoreError: results of others are there."""
    fields = {str(field) for field in cast(list[Any], client.hkeys(progress_key(prefix)))} - {DISK_FIELD}
    others = {field.rpartition("-")[0] for field in fields} - {topic}
    ending = progress_key("")
    others |= {key for key in _scan(client, prefix) if key.endswith(ending) and key != progress_key(prefix)}
    if others:
        raise shared_rows_error(where, others)
    keys = _row_keys(client, settings, prefix)
    size = {"stream": client.xlen, "sorted_set": client.zcard}.get(settings.kind)
    rows = sum(1 for _ in keys) if size is None else sum(cast(Any, size(key)) for key in keys)
    return rows if rows or client.exists(progress_key(prefix)) else None


def clear(client: redis.Redis, settings: RedisStoreSettings, prefix: str, topic: str, where: str) -> None:
    """Delete the rows and the progress; raises as :func:`count_clearable` does."""
    count_clearable(client, settings, prefix, topic, where)
    keys = _row_keys(client, settings, prefix)
    while piece := list(islice(keys, _PIECE)):
        client.delete(*piece)
        pause_at("rows cleared")
    client.delete(progress_key(prefix))


def _row_keys(client: redis.Redis, settings: RedisStoreSettings, prefix: str) -> Iterator[str]:
    """Yield the keys under the prefix that hold what rows are written as."""
    _, kind = COMMANDS[settings.kind]
    keys = (key for key in _scan(client, prefix) if key != progress_key(prefix))
    while piece := list(islice(keys, _PIECE)):
        pipe = client.pipeline(transaction=False)
        for key in piece:
            pipe.type(key)
        yield from (key for key, found in zip(piece, pipe.execute(), strict=True) if found == kind)


def _scan(client: redis.Redis, prefix: str) -> Iterator[str]:
    """Yield each key under the prefix once."""
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", prefix) + "*"
    return iter({str(key) for key in client.scan_iter(pattern, _PIECE)})
