"""
How far an HTTP receiver is: it cannot say so itself, so the project's Redis does.

Law: a :class:`Standing` is replaced by compare-and-set only, so of two writers one finds what the other has noted. If Redis loses what it
has acknowledged, results are sent again, never left out: a reader goes on from an older position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis

from sinks.stores.base import Progress, Stream
from tidegate.redis_client import connect, translate_errors
from tidegate.settings.tables.redis import RedisSettings

# Replaces field ARGV[1] if it is ARGV[2] (empty: missing) by ARGV[3]; returns what stands there then.
_SWAP = """
local old = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if old ~= ARGV[2] then return old end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
"""


class Standing(NamedTuple):
    """
    A partition's progress, and how the batch that begins there is sent: whole, or, once the receiver has refused it whole, row by row.

    Args:
        end: Where the batch ends that may have been sent; None: nothing was sent from here on.
        is_split: Whether its rows go one by one; noted before the first does, and kept until all have.
    """

    stream_id: str
    position: int
    offset: int
    end: int | None = None
    is_split: bool = False

    @property
    def progress(self) -> Progress:
        return Progress(self.stream_id, self.position, self.offset, self.end)


class Standings:
    """The standings of one stream at one receiver: a hash in Redis, one field a partition."""

    def __init__(self, settings: RedisSettings, output: str, url: str, stream: Stream) -> None:
        self._settings, self._stream = settings, stream
        # The URL may hold a token: its digest tells receivers apart as well.
        receiver = hashlib.sha256(url.encode()).hexdigest()[:16]
        self.key = f"tidegate:{{{stream.name}}}:http:{output}:{receiver}"
        self._client: redis.Redis | None = None

    def connect(self) -> redis.Redis:
        """Return the client, connected. Raises UnreachableError: Redis does not answer."""
        if self._client is None:
            self._client = connect(self._settings)
        return self._client

    def read(self, partitions: Sequence[int]) -> Mapping[int, Standing]:
        """Return the standings of partitions, without those of which nothing has been sent."""
        client = self.connect()
        with translate_errors(self._settings.address):
            found: Any = client.hmget(self.key, [str(partition) for partition in partitions])
        return {partition: _parse(text) for partition, text in zip(partitions, found, strict=True) if text}

    def swap(self, partition: int, old: Standing | None, new: Standing) -> Standing:
        """Replace *old* (None: nothing yet) by *new*; return what stands then, *new* or what somebody else has noted."""
        client = self.connect()
        texts = ["" if old is None else json.dumps(old), json.dumps(new)]
        with translate_errors(self._settings.address):
            found: Any = client.eval(_SWAP, 1, self.key, str(partition), *texts)
        return _parse(found)

    def close(self) -> None:
        """Disconnect; the next call connects anew."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _parse(text: str) -> Standing:
    return Standing(*json.loads(text))
