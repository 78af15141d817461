"""
Which query has written which results of a topic: one entry for each run that began there, or went on without its checkpoint.

Law: no result depends on it; a verification does, as each result follows from the query that wrote it, and from where that run began. The
entries stand in Redis, under the topic's id, and in the checkpoint's folder. Whichever of the two is lost, the next start writes it again
from the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
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
class RecordedRun:
    """A run of a query into a topic, as it began. Times are microseconds; outputs go by their topic, one without by its name."""

    # The text of its script; empty if an installed package provides it.
    script: str
    # The output given beside the script.
    into: str | None
    # What the script's plans print, and the ordered topics that they read: another configuration may make others of it.
    plan: str
    # Its output start; None: the beginning.
    start_us: int | None
    # By output and bucket, what earlier runs had promised (:class:`query.config.Promise`); None: not known.
    promises: Mapping[str, Mapping[str, Sequence[Any]]] | None = None
    # Where it began to read its logs (:class:`query.config.LogStart`).
    log_starts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    # The pace of its CTIs.
    pace: Sequence[int | None] = ()
    # By output, how its files and its plain topic were written.
    places: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    # By output and bucket, the first span that its plain topic lacked. A run that is started again finds others there.
    published: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)
    # Its functions in JavaScript (:func:`query.javascript.declarations.record_functions`).
    functions: list[dict[str, Any]] = field(default_factory=list)


def record_run(redis: RedisSettings, folder: Path, topic: str, topic_id: str, run: RecordedRun) -> None:
    """Add *run* to the history of a topic, unless it is the last one there; a Redis that does not answer is only told."""
    kept = _parse(read_json(folder / _FILE) or [])
    failure: TidegateError | None = None
    try:
        stored = read_runs(redis, topic, topic_id)
        kept = stored if len(stored) > len(kept) else kept
    except TidegateError as error:
        # What Redis has may be more than the folder has: the next start adds this run to it.
        failure = error
    runs = kept if kept and kept[-1] == run else [*kept, run]
    replace_text(folder / _FILE, json.dumps([asdict(each) for each in runs]))
    if failure is None:
        try:
            _store(redis, _key(topic, topic_id), runs)
        except TidegateError as error:
            failure = error
    if failure is not None:
        _log.warning("which query writes from when on is kept in the checkpoint's folder only", error=failure)


def _store(redis: RedisSettings, key: str, runs: Sequence[RecordedRun]) -> None:
    with translate_errors(redis.address), connect(redis).pipeline(transaction=True) as whole:
        # Nothing else stays there: an entry that cannot be read would make all of them unknown.
        whole.delete(key)
        whole.hset(key, mapping={str(number): json.dumps(asdict(each)) for number, each in enumerate(runs)})
        whole.execute()


def known_runs(redis: RedisSettings, folder: Path, topic: str, topic_id: str) -> list[RecordedRun]:
    """Return the runs into a topic as the checkpoint's folder has them, or else Redis; none if neither does."""
    if runs := _parse(read_json(folder / _FILE) or []):
        return runs
    with suppress(TidegateError):
        return read_runs(redis, topic, topic_id)
    return []


def read_runs(redis: RedisSettings, topic: str, topic_id: str) -> list[RecordedRun]:
    """Return the runs into a topic in their order; none if nothing is known. UnreachableError: Redis does not answer."""
    with translate_errors(redis.address):
        fields: Any = connect(redis).hgetall(_key(topic, topic_id))
    try:
        return _parse([json.loads(fields[number]) for number in sorted(fields, key=int)])
    except ValueError:
        return []


def _parse(entries: Sequence[Any]) -> list[RecordedRun]:
    # What others have written there is no premise: the history then counts as unknown.
    try:
        return [RecordedRun(**entry) for entry in entries]
    except TypeError:
        return []


def _key(topic: str, topic_id: str) -> str:
    return f"tidegate:{{{topic}}}:queries:{topic_id}"
