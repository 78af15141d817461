"""
Writes results as keys of Redis or Valkey, each once.

Law: one script compares the progress of the partition, checks every key that it will write, and only then writes rows and progress. The
server runs the script alone, writes it as a whole to its append-only file, and sends it as a whole to replicas. So rows and progress
agree. A crash or failover that loses writes loses both, and the job continues from the older progress. A transaction (MULTI) would not do:
Redis does not undo its commands if one of them fails, and each key would have to be watched.

In a stream the id of an entry is the position of its result plus one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import redis

from ordering.errors import UnreachableError
from ordering.ticks import MILLISECOND_US
from sinks.stores.base import Batch, Progress, Refusal, RowsRefused, StoreContext, StoreError
from sinks.stores.redis.clearing import clear, count_clearable
from sinks.stores.redis.commands import COMMANDS, DISK_FIELD, Write, make_writes, parse_progress, progress_field, progress_key
from sinks.stores.redis.failures import translate_errors
from sinks.stores.redis.reading import RedisReader
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.fault_points import pause_at
from tidegate.platform.redis_client import answer_timeout_us, connect
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings

# KEYS: the progress, then each key to write. ARGV: field of the progress, stream id, start, new progress, command, type, ttl in
# milliseconds or 0; then for each write the number of its key, the number of its arguments, and the arguments. Progress is
# "position offset stream-id".
_SCRIPT = """
local known = redis.call('HGET', KEYS[1], ARGV[1])
local position, id = string.match(known or '0 0 ' .. ARGV[2], '^(%d+) %d+ (.*)$')
if position ~= ARGV[3] or id ~= ARGV[2] then return {'before', known or ''} end
local refused = {}
for number = 2, #KEYS do
  local there = redis.call('TYPE', KEYS[number]).ok
  if there ~= 'none' and there ~= ARGV[6] then
    refused[#refused + 1] = number
    refused[#refused + 1] = there
  elseif there == 'stream' then
    local about = redis.call('XINFO', 'STREAM', KEYS[number])
    for at = 1, #about, 2 do
      if about[at] == 'last-generated-id' then
        local last = string.match(about[at + 1], '^(%d+)')
        if tonumber(last) > tonumber(ARGV[3]) then return {'ahead', KEYS[number], last} end
      end
    end
  end
end
if #refused > 0 then return {'refused', unpack(refused, 1, math.min(#refused, 2000))} end
local at = 8
while at <= #ARGV do
  local key, last = KEYS[tonumber(ARGV[at])], at + 1 + tonumber(ARGV[at + 1])
  if ARGV[5] == 'HSET' then redis.call('DEL', key) end
  redis.call(ARGV[5], key, unpack(ARGV, at + 2, last))
  if ARGV[7] ~= '0' then redis.call('PEXPIRE', key, ARGV[7]) end
  at = last + 1
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
return {'written'}
"""
_HASH_TAG = re.compile(r"\{[^}]+\}")


class RedisStore:
    """The keys of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: RedisStoreSettings) -> None:
        self._context, self._settings = context, settings
        self._prefix = settings.key_prefix or f"{context.output}:"
        self._progress_key = progress_key(self._prefix)
        self._where = f"redis {settings.address.rpartition('@')[2].rpartition('://')[2]} {self._prefix}"
        self._client: redis.Redis | None = None
        self._is_ready = False

    @property
    def name(self) -> str:
        return self._where

    def check(self) -> None:
        """Check ``primary_key`` and ``score`` against the query's columns, and that the server's settings do not lose rows."""
        kinds = dict(self._context.columns)
        named = [*self._settings.primary_key, *([self._settings.score] if self._settings.score else [])]
        for column in named:
            if column not in kinds:
                raise self._error("TG-STORE-COLUMN", f"the query has no column {column}", "name columns of the query")
        if self._settings.score and kinds[self._settings.score] not in ("bigint", "float"):
            what = f"score {self._settings.score} is {kinds[self._settings.score]}, and a score is a number"
            raise self._error("TG-STORE-COLUMN", what, "name a column of type bigint or float, or CAST in the query")
        with translate_errors(self._where):
            self._check_server(self._connect())

    def prepare(self) -> None:
        """Check, and with ``durability = "disk"`` wait until everything that was written before is on the server's disk."""
        self.check()
        if self._settings.durability == "disk":
            with translate_errors(self._where):
                # WAITAOF waits for the writes of this connection, so one is made: all earlier writes come before it.
                self._execute("HSET", self._progress_key, DISK_FIELD, "")
        self._is_ready = True

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress in the hash of progress."""
        client = self._ready()
        with translate_errors(self._where):
            texts: Any = client.hmget(self._progress_key, [self._field(partition) for partition in partitions])
        return {partition: parse_progress(text) for partition, text in zip(partitions, texts, strict=True) if text is not None}

    def write(self, batch: Batch) -> Progress:
        """Run the script: it writes rows and progress, or nothing."""
        # Redis has no column types, so they are checked here.
        make_typed_table(batch.rows, self._context.columns)
        writes = make_writes(batch.rows, batch.partition, self._settings, self._prefix)
        self._ready()
        # Rows and progress are sent in one message, so a job can be killed only before or after both.
        pause_at("rows sent")
        with translate_errors(self._where):
            answer = self._run_script(batch, writes)
            pause_at("progress sent")
        if answer[0] == "before":
            return parse_progress(answer[1]) if answer[1] else Progress(batch.stream_id, 0, 0)
        if answer[0] == "ahead":
            what = f"the stream {answer[1]} has entries up to {answer[2]}-0, and the progress stands at {batch.start:,}"
            fix = f"delete the stream, or give this output a key_prefix of its own; {self._progress_key} has the progress"
            raise self._error("TG-STORE-LOST", what, fix)
        return batch.progress

    def null_refusals(self) -> Mapping[str, str]:
        """Return all columns of the key: the name of a Redis key has no NULL."""
        return dict.fromkeys(self._settings.primary_key, "")

    def count_clearable(self) -> int | None:
        """See :class:`sinks.stores.base.ClearableStore`."""
        with translate_errors(self._where):
            return count_clearable(self._connect(), self._settings, self._prefix, self._context.stream.name, self._where)

    def clear(self) -> None:
        """Delete the keys of the rows, then that of the progress."""
        with translate_errors(self._where):
            clear(self._connect(), self._settings, self._prefix, self._context.stream.name, self._where)

    def reader(self) -> RedisReader:
        """Return a reader of the keys."""
        with translate_errors(self._where):
            # Another program may have changed a text to bytes that are not UTF-8.
            self._client = connect(self._settings, retries=0, encoding_errors="backslashreplace")
        return RedisReader(self._client, self._settings, self._prefix, self._context, self._where)

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client, self._is_ready = None, False

    def _connect(self) -> redis.Redis:
        if self._client is None:
            self._client = connect(self._settings, retries=0)
        return self._client

    def _ready(self) -> redis.Redis:
        if not self._is_ready:
            self.prepare()
        assert self._client is not None
        return self._client

    def _check_server(self, client: redis.Redis) -> None:
        about: Any = client.info("everything")
        policy = str(about.get("maxmemory_policy"))
        if int(about.get("maxmemory", 0)) and policy.startswith("allkeys"):
            what = f"the server drops keys when memory is short (maxmemory-policy {policy}), rows and progress among them"
            raise self._error("TG-STORE-REFUSED", what, "set maxmemory-policy to noeviction or volatile-ttl")
        if about.get("cluster_enabled") and not _HASH_TAG.search(self._prefix):
            what = "the server is part of a cluster, where one script reaches only the keys of one slot"
            raise self._error("TG-STORE-REFUSED", what, f'give key_prefix a hash tag: "{{{self._context.output}}}:"')
        if self._settings.durability == "disk" and not about.get("aof_enabled"):
            what = "the server keeps no append-only file, so nothing is ever on its disk"
            raise self._error("TG-STORE-REFUSED", what, 'switch it on (appendonly yes), or set durability = "memory"')

    def _run_script(self, batch: Batch, writes: Sequence[Write]) -> list[str]:
        command, kind = COMMANDS[self._settings.kind]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(write.key for write in writes), start=2)}
        new_progress = f"{batch.end} {batch.offset} {batch.stream_id}"
        ttl_ms = (self._settings.ttl_us or 0) // MILLISECOND_US
        arguments: list[Any] = [self._field(batch.partition), batch.stream_id, batch.start, new_progress, command, kind, ttl_ms]
        for write in writes:
            arguments += [numbers[write.key], len(write.arguments), *write.arguments]
        answer: Any = self._execute("EVAL", _SCRIPT, 1 + len(numbers), self._progress_key, *numbers, *arguments)
        if answer[0] == "refused":
            kinds = {int(number): str(existing_kind) for number, existing_kind in zip(answer[1::2], answer[2::2], strict=True)}
            reasons = {
                position: f"WRONGTYPE the key {write.key} holds a {kinds[numbers[write.key]]}"
                for write in writes
                if numbers[write.key] in kinds
                for position in write.positions
            }
            raise RowsRefused([Refusal(position, reasons[position]) for position in sorted(reasons)])
        return [str(part) for part in answer]

    def _execute(self, *command: Any) -> Any:
        """Return the answer to one command that writes; with ``durability = "disk"`` once it is on the server's disk."""
        # Both commands over one connection: on another one WAITAOF would wait for nothing.
        with self._connect().pipeline(transaction=False) as pipe:
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            if self._settings.durability == "disk":
                pipe.waitaof(1, 0, answer_timeout_us(self._settings) // MILLISECOND_US // 2)
            answer, *disk = pipe.execute()
        if disk and int(disk[0][0]) < 1:
            what = "it has not confirmed that the rows are on its disk"
            raise UnreachableError(what, code="TG-STORE-UNREACHABLE", where=self._where)
        return answer

    def _field(self, partition: int) -> str:
        return progress_field(self._context.stream.name, partition)

    def _error(self, code: str, what: str, fix: str) -> StoreError:
        return StoreError(what, code=code, where=self._where, fix=fix)
