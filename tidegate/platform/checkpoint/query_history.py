"""
Which query has written which results of a topic: one entry for each run that began there, or went on without its checkpoint.

Law: no result depends on it; a verification does, as each span of results follows from the query that wrote it. The entries stand in Redis,
under the topic's id, and in the checkpoint's folder. Whichever of the two is lost, the next start writes it again from the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ordering.errors import TidegateError
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.redis_client import connect, translate_errors
from tidegate.platform.settings.tables.redis import RedisSettings

_FILE = "queries.json"
_log = get_logger("query")


@dataclass(frozen=True, slots=True)
class QueryRun:
    """
    A run of a query into a topic. Times are microseconds.

    Args:
        script: The text of its script; empty if an installed package provides it.
        into: The output given beside the script.
        plan: What the script's plans print, and the ordered topics that they read: another configuration may make others of it.
        start_us: Its output start; None: the beginning.
        from_us: Results from here on are this run's alone; None: all, it was the first.
        before_us: Results before this instant are those of earlier runs alone.
    """

    script: str
    into: str | None
    plan: str
    start_us: int | None
    from_us: int | None = None
    before_us: int | None = None


def record_run(redis: RedisSettings, folder: Path, topic: str, topic_id: str, run: QueryRun) -> None:
    """Add *run* to the history of a topic, unless it is the last one there; a Redis that does not answer is only told."""
    kept = _parse(read_json(folder / _FILE) or [])
    with suppress(TidegateError):
        stored = read_runs(redis, topic, topic_id)
        kept = stored if len(stored) > len(kept) else kept
    runs = kept if kept and kept[-1] == run else [*kept, run]
    replace_text(folder / _FILE, json.dumps([asdict(each) for each in runs]))
    try:
        with translate_errors(redis.address):
            connect(redis).hset(_key(topic, topic_id), mapping={str(number): json.dumps(asdict(each)) for number, each in enumerate(runs)})
    except TidegateError as error:
        _log.warning("which query writes from when on is kept in the checkpoint's folder only", error=error)


def known_runs(redis: RedisSettings, folder: Path, topic: str, topic_id: str) -> list[QueryRun]:
    """Return the runs into a topic as the checkpoint's folder has them, or else Redis; none if neither does."""
    if runs := _parse(read_json(folder / _FILE) or []):
        return runs
    with suppress(TidegateError):
        return read_runs(redis, topic, topic_id)
    return []


def read_runs(redis: RedisSettings, topic: str, topic_id: str) -> list[QueryRun]:
    """Return the runs into a topic in their order; none if nothing is known. UnreachableError: Redis does not answer."""
    with translate_errors(redis.address):
        fields: Any = connect(redis).hgetall(_key(topic, topic_id))
    try:
        return _parse([json.loads(fields[number]) for number in sorted(fields, key=int)])
    except ValueError:
        return []


def _parse(entries: Sequence[Any]) -> list[QueryRun]:
    # What others have written there is no premise: the history then counts as unknown.
    try:
        return [QueryRun(**entry) for entry in entries]
    except TypeError:
        return []


def _key(topic: str, topic_id: str) -> str:
    return f"tidegate:{{{topic}}}:queries:{topic_id}"
