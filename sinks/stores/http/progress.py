"""
The progress of an HTTP receiver, kept in the project's Redis because the receiver cannot keep it.

Law: a :class:`SendingProgress` is replaced by compare-and-set only, so of two writers one finds the note of the other. If Redis loses
acknowledged writes, results are sent again and none is left out: the copier continues from an older position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis

from sinks.stores.base import Progress, Stream
from tidegate.platform.redis_client import ForeignValueError, connect, translate_errors
from tidegate.platform.settings.tables.redis import RedisSettings

# Replaces field ARGV[1] by ARGV[3] if its value is ARGV[2] (empty: no field); returns the value after that.
_SWAP = """
local old = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if old ~= ARGV[2] then return old end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
"""


class SendingProgress(NamedTuple):
    """
    A partition's progress, and how the batch that begins there is sent: whole or, after the receiver has refused it, row by row.

    Args:
        end: The end of the batch that may have been sent; None: no later row was sent.
        is_split: Whether the rows of the batch are sent one by one; noted before the first of them is sent.
    """

    stream_id: str
    position: int
    offset: int
    end: int | None = None
    is_split: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether the members are of their kinds, as they are unless others have written them."""
        members: tuple[Any, ...] = tuple(self)
        are_offsets = all(type(each) is int and 0 <= each < 2**63 for each in (*members[1:3], members[3] or 0))
        return type(members[0]) is str and are_offsets and type(members[4]) is bool

    @property
    def progress(self) -> Progress:
        return Progress(self.stream_id, self.position, self.offset, self.end)


class Standings:
    """The standings of one stream at one receiver: a hash in Redis, one field a partition."""

    def __init__(self, settings: RedisSettings, output: str, url: str, stream: Stream) -> None:
        self._settings, self._stream = settings, stream
        # A digest, because the URL may hold a token.
        receiver = hashlib.sha256(url.encode()).hexdigest()[:16]
        self.key = f"tidegate:{{{stream.name}}}:http:{output}:{receiver}"
        self._client: redis.Redis | None = None

    def connect(self) -> redis.Redis:
        """Return the client, connected. Raises UnreachableError: Redis does not answer."""
        if self._client is None:
            self._client = connect(self._settings)
        return self._client

    def read(self, partitions: Sequence[int]) -> Mapping[int, SendingProgress]:
        """Return the standings of partitions; partitions of which nothing has been sent are missing."""
        client = self.connect()
        with translate_errors(self._settings.address):
            texts: Any = client.hmget(self.key, [str(partition) for partition in partitions])
        return {partition: self._parse(partition, text) for partition, text in zip(partitions, texts, strict=True) if text}

    def swap(self, partition: int, old: SendingProgress | None, new: SendingProgress) -> SendingProgress:
        """Replace *old* (None: none yet) by *new*; return the standing after that: *new*, or that of another writer."""
        client = self.connect()
        texts = ["" if old is None else json.dumps(old), json.dumps(new)]
        with translate_errors(self._settings.address):
            stored: Any = client.eval(_SWAP, 1, self.key, str(partition), *texts)
        return self._parse(partition, stored)

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _parse(self, partition: int, text: str) -> SendingProgress:
        """Return the standing that Redis holds. Raises ForeignValueError: it is none, so that it is not known what has been sent."""
        try:
            standing = SendingProgress(*json.loads(text))
        except (ValueError, TypeError, RecursionError):
            standing = None
        if standing is None or not standing.is_valid:
            raise ForeignValueError(self._settings.address, f"field {partition} of {self.key}", "is no progress of a receiver")
        return standing
