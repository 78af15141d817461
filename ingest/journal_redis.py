"""
The journal in Redis or Valkey: each call is one atomic script, and one round trip however many partitions it is for.

Law: it behaves as :class:`~ordering.journal.MemoryJournal`, also under several processes, and what a call returned is
on the server's disk, so a crash of the server takes none of it back. Every script writes, even one that only reads:
the server's promise about its disk covers what *this* connection wrote, and all that was written before it.

Keys: ``tidegate:{JOB}:journal:TOPIC_ID:PARTITION`` and, below it, ``:estimates`` (a hash, position to frontier) with
``:positions`` (a sorted set), and ``:imports`` (position to c) with ``:import_positions``; for each ordered topic
``tidegate:{TOPIC}:made_of:TOPIC_ID``, what it is made of. Numbers are 19 decimal digits with leading zeros, compared as
text: a script's own numbers are floating point and would round microseconds after the year 2255.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from ordering.errors import RefusedError, TickRangeError, UnreachableError
from ordering.journal import JournalKey
from ordering.ticks import MILLISECOND_US, format_duration
from tidegate.runtime.logs import get_logger
from tidegate.runtime.redis import answer_timeout_us, connect, translated
from tidegate.runtime.setting_tables import RedisSettings

_RAISE = """
local out = {}
for i = 1, #ARGV / 2 do
  local facts, values, positions = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local position, value = ARGV[2 * i - 1], ARGV[2 * i]
  local closed = redis.call('HGET', facts, 'closed')
  if closed and position < closed then
    out[i] = ''
  else
    local known = redis.call('HGET', values, position)
    if known and known > value then value = known end
    redis.call('HSET', values, position, value)
    redis.call('ZADD', positions, 0, position)
    out[i] = value
  end
end
return out
"""

_CLOSE = """
for i = 1, #ARGV do
  local facts = KEYS[3 * i - 2]
  local closed = redis.call('HGET', facts, 'closed')
  if not closed or closed < ARGV[i] then closed = ARGV[i] end
  redis.call('HSET', facts, 'closed', closed)
end
return #ARGV
"""

_READ = """
local out = {}
for i = 1, #ARGV / 2 do
  local facts, values, positions = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  redis.call('HSET', facts, 'read', 1)
  local found = {}
  for _, position in ipairs(redis.call('ZRANGEBYLEX', positions, '[' .. ARGV[2 * i - 1], '[' .. ARGV[2 * i])) do
    found[#found + 1] = position
    found[#found + 1] = redis.call('HGET', values, position)
  end
  out[i] = found
end
return out
"""

_BASE = """
local base = redis.call('HGET', KEYS[1], 'base') or ARGV[1]
redis.call('HSET', KEYS[1], 'base', base)
return base
"""

_MADE_OF = """
if ARGV[2] == 'anew' then redis.call('DEL', KEYS[1]) end
local first = redis.call('HSETNX', KEYS[1], 'settings', ARGV[1])
redis.call('HSET', KEYS[1], 'read', 1)
return {redis.call('HGET', KEYS[1], 'settings'), first}
"""

_CLOSED = """
redis.call('HSET', KEYS[1], 'read', 1)
return redis.call('HGET', KEYS[1], 'closed') or '0'
"""

_ESTIMATES = "estimates", "positions"
_IMPORTS = "imports", "import_positions"


class RedisJournal:
    """
    The :class:`~ordering.journal.Journal` of ingest jobs. Not picklable: open one in each process that needs it.

    Args:
        client: A client that answers (:func:`tidegate.runtime.redis.connect`).
        address: The server as it may be shown.
        disk_timeout_us: How long the server may take to tell that a call is on its disk, microseconds; 0: do not ask,
            because every write is there before it is answered, or because durability was given up.
    """

    def __init__(self, client: redis.Redis, address: str, disk_timeout_us: int) -> None:
        self._client, self._address, self._disk_timeout_us = client, address, disk_timeout_us

    @classmethod
    def open(cls, settings: RedisSettings) -> RedisJournal:
        """
        Connect, and check that the server keeps what it is told.

        Raises:
            UnreachableError: It does not answer within ``redis.connect_timeout``.
            RefusedError: It would drop or lose facts, and ``redis.journal_durability`` does not allow that.
        """
        client = connect(settings)
        with translated(settings.address):
            _refuse_eviction(client, settings.address)
            # The answer about the disk must come before the client gives up on the call.
            return cls(client, settings.address, answer_timeout_us(settings) * 4 // 5 if _asks_for_disk(client, settings) else 0)

    def estimate(self, key: JournalKey, next_offset: int, frontier_us: int) -> int | None:
        """See :meth:`ordering.journal.Journal.estimate`."""
        return self.estimate_many([(key, next_offset, frontier_us)])[0]

    def estimate_many(self, estimates: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """See :meth:`ordering.journal.Journal.estimate_many`."""
        return self._raise(_ESTIMATES, estimates)

    def import_cti(self, key: JournalKey, next_offset: int, c_us: int) -> int | None:
        """See :meth:`ordering.journal.Journal.import_cti`."""
        return self.import_many([(key, next_offset, c_us)])[0]

    def import_many(self, imports: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        """See :meth:`ordering.journal.Journal.import_many`."""
        return self._raise(_IMPORTS, imports)

    def _raise(self, kind: tuple[str, str], values: Sequence[tuple[JournalKey, int, int]]) -> list[int | None]:
        arguments = [_digits(number) for _, next_offset, value_us in values for number in (next_offset, value_us)]
        answers = self._run(_RAISE, [key for key, _, _ in values], arguments, [], kind)
        return [int(answer) if answer else None for answer in answers]

    def close(self, key: JournalKey, below: int) -> None:
        """See :meth:`ordering.journal.Journal.close`."""
        self.close_many([(key, below)])

    def close_many(self, positions: Sequence[tuple[JournalKey, int]]) -> None:
        """See :meth:`ordering.journal.Journal.close_many`."""
        self._run(_CLOSE, [key for key, _ in positions], [_digits(below) for _, below in positions], 0)

    def closed(self, key: JournalKey) -> int:
        """See :meth:`ordering.journal.Journal.closed`."""
        return int(self._run(_CLOSED, [key], [], "0"))

    def estimates(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """See :meth:`ordering.journal.Journal.estimates`."""
        return self.estimates_many([(key, start, end)])[0]

    def estimates_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """See :meth:`ordering.journal.Journal.estimates_many`."""
        return self._read(_ESTIMATES, ranges)

    def imports(self, key: JournalKey, start: int, end: int) -> list[tuple[int, int]]:
        """See :meth:`ordering.journal.Journal.imports`."""
        return self.imports_many([(key, start, end)])[0]

    def imports_many(self, ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        """See :meth:`ordering.journal.Journal.imports_many`."""
        return self._read(_IMPORTS, ranges)

    def _read(self, kind: tuple[str, str], ranges: Sequence[tuple[JournalKey, int, int]]) -> list[list[tuple[int, int]]]:
        arguments = [_digits(number) for _, start, end in ranges for number in (start, end)]
        answers = self._run(_READ, [key for key, _, _ in ranges], arguments, [], kind)
        return [[(int(position), int(value)) for position, value in zip(found[::2], found[1::2], strict=True)] for found in answers]

    def base(self, key: JournalKey, frontier_us: int) -> int:
        """See :meth:`ordering.journal.Journal.base`."""
        return int(self._run(_BASE, [key], [_digits(frontier_us)], "0"))

    def made_of(self, topic: str, topic_id: str, settings: str, anew: bool) -> tuple[str, bool]:
        """
        Say what an ordered topic is made of, unless somebody has said it before.

        Args:
            topic: The ordered topic.
            topic_id: Kafka's id of it.
            settings: All that shapes its events, as text.
            anew: Nothing has been written to it yet: what was said before does not count.

        Returns:
            What was said first, and whether that was just now.
        """
        name = f"tidegate:{{{topic}}}:made_of:{topic_id}"
        said, first = self._call(_MADE_OF, [name], [settings, "anew" if anew else ""])
        return str(said), bool(first)

    def close_connection(self) -> None:
        """Give the connection back; the journal cannot be used afterwards."""
        self._client.close()

    def _run(
        self, script: str, keys: Sequence[JournalKey], arguments: Sequence[str], nothing: Any, kind: tuple[str, str] = _ESTIMATES
    ) -> Any:
        """Run *script* on facts of a *kind*; *nothing* is the answer where no partition is asked for."""
        return self._call(script, [name for key in keys for name in _redis_keys(key, kind)], arguments) if keys else nothing

    def _call(self, script: str, names: Sequence[str], arguments: Sequence[str]) -> Any:
        """Run *script* and wait until its writes are on disk."""
        with translated(self._address), self._client.pipeline(transaction=False) as pipe:
            pipe.eval(script, len(names), *names, *arguments)
            if self._disk_timeout_us:
                pipe.waitaof(1, 0, self._disk_timeout_us // MILLISECOND_US)
            answer, *disk = pipe.execute()
        if disk and int(disk[0][0]) < 1:
            raise UnreachableError(
                f"Redis at {self._address} did not confirm within {format_duration(self._disk_timeout_us)} that the journal is on its disk",
                code="TG-JOURNAL-DISK",
                where="redis.url",
                fix="look at the server's disk; set appendfsync to always or everysec",
            )
        return answer


def _redis_keys(key: JournalKey, kind: tuple[str, str]) -> tuple[str, str, str]:
    # The braces keep all keys of a job in one slot of a cluster: one script may then touch them together.
    facts = f"tidegate:{{{key.job}}}:journal:{key.topic_id}:{key.partition}"
    values, positions = kind
    return facts, f"{facts}:{values}", f"{facts}:{positions}"


def _digits(number: int) -> str:
    if not 0 <= number < 2**63:
        raise TickRangeError(f"{number} cannot stand in the journal: it is negative or wider than 63 bits")
    return f"{number:019d}"


def _refuse_eviction(client: redis.Redis, address: str) -> None:
    memory: Any = client.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and int(memory.get("maxmemory", 0)) > 0:
        raise RefusedError(
            f"Redis at {address} drops keys when memory is short (maxmemory-policy {policy}): the journal could lose facts",
            code="TG-JOURNAL-EVICTION",
            where="redis.url",
            fix="set maxmemory-policy to noeviction, or give the journal a server of its own",
            example="CONFIG SET maxmemory-policy noeviction",
        )


def _asks_for_disk(client: redis.Redis, settings: RedisSettings) -> bool:
    """Return whether to ask for the disk after each call; refuse or warn where the server can lose what it answered."""
    if settings.journal_durability == "memory":
        get_logger().warning("a crash of Redis may lose journaled estimates", redis=settings.address, journal_durability="memory")
        return False
    reason = _why_no_waitaof(client)
    if reason is None:
        return True
    if _syncs_every_write(client):
        return False
    raise RefusedError(
        f"Redis at {settings.address} can lose what it has answered ({reason}), and with it estimates already used",
        code="TG-JOURNAL-DURABILITY",
        where="redis.journal_durability",
        fix="switch its append-only file on (before version 7.2 with appendfsync always), or accept the risk",
        example='[redis]\njournal_durability = "memory"',
    )


def _why_no_waitaof(client: redis.Redis) -> str | None:
    try:
        client.waitaof(1, 0, 1)
    except redis.ResponseError as error:
        return str(error)
    return None


def _syncs_every_write(client: redis.Redis) -> bool:
    try:
        found: Any = client.config_get("append*")
    except redis.ResponseError:  # hosted servers often forbid CONFIG
        return False
    return bool(found.get("appendonly") == "yes" and found.get("appendfsync") == "always")
