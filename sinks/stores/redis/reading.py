"""
Reads the keys of an output, and converts results to the form that they have in keys.

Law: a key that exists from the first to the last reading of the progress is read once. Redis cannot show many keys at one moment, so
results that were written in between may stand or not. Fields and members are compared as text, values of strings byte by byte. The key
belongs to the row: a row under the key of another one is not that result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, cast

import pyarrow as pa
import redis

from sinks.stores.base import Progress, Rows, StoreContext
from sinks.stores.reading import Keeps, Standing
from sinks.stores.redis.commands import DISK_FIELD, find_places, parse_progress, progress_field, progress_key
from sinks.stores.redis.failures import translate_errors
from sinks.stores.typed_rows import make_typed_table
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings
from tidegate.records.result_columns import members

# How many keys, entries or members are read at once.
_PIECE = 1_000
# Columns beside those of the query: the key; the id of an entry or the member within it; and the text of a value that is no result.
_KEY, _WITHIN, _OTHER = "redis key", "redis member", "redis value"
# A row: these columns and those of the query, as text.
Row = Mapping[str, str]


class RedisReader:
    """Reads the rows under *prefix*."""

    def __init__(
        self,
        client: redis.Redis,
        settings: RedisStoreSettings,
        prefix: str,
        context: StoreContext,
        where: str,
    ) -> None:
        self._client, self._settings, self._prefix, self._context = client, settings, prefix, context
        self._where = where
        is_stream = settings.kind == "stream"
        self.keeps: Keeps = "all" if is_stream else "last"
        self.key: tuple[str, ...] = () if is_stream else (_KEY, _WITHIN)
        self._columns = [_KEY, _WITHIN, _OTHER, *(name for name, _ in context.columns)]

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """See :meth:`sinks.stores.reading.StoreReader.read`."""
        with translate_errors(self._where):
            before = self._read_progress()
            rows = self._rows()
            while piece := list(islice(rows, _PIECE)):
                accept(self._table(piece))
            after = self._read_progress()
        ours = {progress_field(self._context.stream.name, partition): partition for partition in range(self._context.stream.partitions)}
        certain = {partition: before[field].position for field, partition in ours.items() if field in before}
        progress = {partition: after[field] for field, partition in ours.items() if field in after}
        return Standing(progress, bool(after.keys() - ours.keys()), certain, expires=self._settings.ttl_us is not None)

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """See :meth:`sinks.stores.reading.StoreReader.keep`."""
        make_typed_table(rows, self._context.columns)
        places = find_places(rows, partition, self._settings, self._prefix)
        return self._table([self._row(write.key, [_text(argument) for argument in write.arguments]) for _, write in places])

    def _read_progress(self) -> Mapping[str, Progress]:
        found = cast(dict[str, str], self._client.hgetall(progress_key(self._prefix)))
        return {field: parse_progress(text) for field, text in found.items() if field != DISK_FIELD}

    def _rows(self) -> Iterator[Row]:
        match self._settings.kind:
            case "stream":
                keys = [f"{self._prefix}{partition}" for partition in range(self._context.stream.partitions)]
                return (self._row(key, [number, *_flat(fields)]) for key in keys for number, fields in self._entries(key))
            case "sorted_set":
                key = f"{self._prefix}by_{self._settings.score}"
                return (self._row(key, [repr(score), member]) for member, score in _once(self._client.zscan_iter(key, count=_PIECE)))
            case _:
                return self._values()

    def _entries(self, key: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        start = "-"
        while found := cast(list[Any], self._client.xrange(key, start, "+", _PIECE)):
            yield from found
            start = f"({found[-1][0]}"

    def _values(self) -> Iterator[Row]:
        pattern = "".join(f"\\{sign}" if sign in "*?[]\\" else sign for sign in self._prefix) + "*"
        keys = (
            key for key, _ in _once((key, None) for key in self._client.scan_iter(pattern, _PIECE)) if key != progress_key(self._prefix)
        )
        is_hash = self._settings.kind == "hash"
        while piece := list(islice(keys, _PIECE)):
            pipe = self._client.pipeline(transaction=False)
            for key in piece:
                pipe.hgetall(key) if is_hash else pipe.get(key)
            for key, found in zip(piece, pipe.execute(raise_on_error=False), strict=True):
                if isinstance(found, redis.ResponseError):
                    yield {_KEY: key, _OTHER: str(found)}
                elif found:  # a key that was deleted meanwhile has no value
                    yield self._row(key, _flat(found) if is_hash else [found])

    def _row(self, key: str, arguments: Sequence[str]) -> Row:
        """Return the row for the arguments of a command, or for the same values read back from its key."""
        match self._settings.kind:
            case "hash":
                return self._with_fields({_KEY: key}, arguments)
            case "stream":
                return self._with_fields({_KEY: key, _WITHIN: arguments[0]}, arguments[1:])
            case "sorted_set":
                return {_KEY: key, _WITHIN: arguments[1], str(self._settings.score): repr(float(arguments[0]))}
            case _:
                return {_KEY: key, **_members(arguments[0], self._columns)}

    def _with_fields(self, row: dict[str, str], arguments: Sequence[str]) -> Row:
        fields = dict(zip(arguments[::2], arguments[1::2], strict=True))
        unknown = {name: text for name, text in fields.items() if name not in self._columns}
        return {**row, **({_OTHER: str(unknown)} if unknown else {}), **{name: fields[name] for name in fields.keys() - unknown.keys()}}

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in self._columns})


def _once(found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield each name once: a scan of Redis may return one twice while others are added or deleted."""
    seen: set[int] = set()
    for name, value in found:
        if hash(name) not in seen:
            seen.add(hash(name))
            yield name, value


def _flat(fields: Mapping[str, str]) -> list[str]:
    return [part for field in fields.items() for part in field]


def _text(argument: str | bytes) -> str:
    return argument if isinstance(argument, str) else argument.decode()


def _members(text: str, columns: Sequence[str]) -> Row:
    """Return the members of a JSON object as JSON texts; a text that is not exactly the object of its members is no result."""
    try:
        values = {name: value for name, _, value in members(text)}
    except (ValueError, IndexError, RecursionError, AssertionError):
        values = {}
    is_result = text == "{" + ",".join(f"{encode_basestring(name)}:{value}" for name, value in values.items()) + "}"
    return values if is_result and values.keys() <= {*columns} else {_OTHER: text}
