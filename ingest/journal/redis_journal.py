"""
The journal in Redis or Valkey: each call is one atomic script in one round trip, for any number of partitions.

Law: it behaves as the model in ``tests/support/journals.py``, also under several processes. Facts that a call returned are on the server's
disk, so a crash of the server loses none of them. Every script writes, even one that only reads, because the server confirms its disk only
for writes of *this* connection, and all writes before them.

If the server has lost confirmed facts (it was emptied, or restored from an older copy), the next call notices: the facts of a partition
carry an *era*, a random word of their first writer, and a count of writes.

Keys: ``tidegate:{JOB}:journal:TOPIC_ID:PARTITION``, a hash (closed, base, join, silence, era, writes), and below it, for each kind that has
many facts, a hash from position to value and a sorted set of positions: ``:estimates`` with ``:positions``, ``:imports`` with
``:import_positions``, ``:stamps`` with ``:stamp_positions``, ``:verdicts`` with ``:verdict_positions``, ``:skips`` with
``:skip_positions``; for each ordered topic ``tidegate:{TOPIC}:fingerprint:TOPIC_ID``, the settings that shape its events, and
``tidegate:{TOPIC}:notes:TOPIC_ID``, who asked for its skips and why. Numbers are 19 decimal digits with leading zeros, compared as text:
Lua's numbers are floating point and would round microseconds after the year 2255.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import redis

from ingest.journal.redis_script import SCRIPT
from ordering.errors import RefusedError, TickRangeError, UnreachableError
from ordering.protocol.facts import Fact, FactKind, sort_facts
from ordering.protocol.journal import (
    KINDS_BY_POSITION,
    Call,
    Close,
    Forget,
    ImpossibleFactError,
    Journal,
    JournalKey,
    JournalWipedError,
    Propose,
    Raise,
    Read,
    ReadClosed,
    RecordSilence,
    Silence,
)
from ordering.ticks import MILLISECOND_US, format_duration
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.redis_client import answer_timeout_us, connect, is_denial, translate_errors
from tidegate.platform.settings.tables.redis import RedisSettings

_FINGERPRINT_SCRIPT = """
if ARGV[2] == 'anew' then redis.call('DEL', KEYS[1]) end
local first = redis.call('HSETNX', KEYS[1], 'settings', ARGV[1])
redis.call('HSET', KEYS[1], 'read', 1)
return {redis.call('HGET', KEYS[1], 'settings'), first}
"""

_NOTES_SCRIPT = """
if (redis.call('HGET', KEYS[1], 'notes') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'notes', ARGV[2])
return 1
"""

_NAMES = {
    FactKind.ESTIMATE: "estimates",
    FactKind.IMPORT: "imports",
    FactKind.STAMP: "stamps",
    FactKind.CLOCK: "verdicts",
    FactKind.BASE: "base",
    FactKind.JOIN: "join",
    FactKind.SKIP: "skips",
}
_POSITIONS = {
    FactKind.ESTIMATE: "positions",
    FactKind.IMPORT: "import_positions",
    FactKind.STAMP: "stamp_positions",
    FactKind.CLOCK: "verdict_positions",
    FactKind.SKIP: "skip_positions",
}
_SINGLE = ("closed", "base", "join", "silence")
# In the server's words: a key or a field is not what the script has written there.
_OF_ANOTHER_TYPE = ("WRONGTYPE", "is not an integer", "attempt to compare", "attempt to concatenate")
# Era and count of writes of each partition's facts, as last seen.
SeenWrites = dict[JournalKey, tuple[str, int]]
_LAST, _DIGITS = 2**63 - 1, 19
# Most facts that one script restores or forgets: a script blocks the server.
_AT_ONCE = 2_000


class _ScriptCall(NamedTuple):
    """A call as arguments of the script, and the function that reads its answer."""

    name: str
    key: JournalKey
    arguments: tuple[str, ...]
    read: Callable[[Any], Any]


@dataclass(slots=True)
class Entries:
    """The entries of a partition as texts: single ones by name, those with positions by kind and position (None: no value)."""

    single: dict[str, str] = field(default_factory=dict)
    by_kind: dict[FactKind, dict[str, str | None]] = field(default_factory=dict)
    # The Redis keys that hold another type, or no text.
    of_other_type: list[str] = field(default_factory=list)


class RedisJournal(Journal):
    """
    The :class:`~ordering.protocol.journal.Journal` of ingest jobs. Not picklable: open one in each process that needs it.

    Args:
        disk_timeout_us: How long the server may take to confirm that a call is on its disk; 0: do not ask.
        seen_writes: The eras and counts that earlier connections of this process have seen, so that a loss in between is noticed; kept up
            to date.
        input_name: The input whose journal it is, for the commands that errors give.
    """

    def __init__(
        self, client: redis.Redis, address: str, disk_timeout_us: int, seen_writes: SeenWrites | None = None, input_name: str = "INPUT"
    ) -> None:
        self._client, self._address, self._disk_timeout_us, self._input_name = client, address, disk_timeout_us, input_name
        self._seen_writes: SeenWrites = {} if seen_writes is None else seen_writes

    @classmethod
    def open(cls, settings: RedisSettings, seen_writes: SeenWrites | None = None, input_name: str = "INPUT") -> RedisJournal:
        """
        Connect; UnreachableError without an answer within ``redis.connect_timeout``, RefusedError if the server could drop or lose facts
        and ``redis.journal_durability`` does not allow that.
        """
        client = connect(settings)
        with translate_errors(settings.address):
            _refuse_eviction(client, settings.address)
            # The disk's confirmation must come before the client gives up on the call.
            disk_timeout_us = answer_timeout_us(settings) * 4 // 5 if _must_confirm_disk(client, settings) else 0
            return cls(client, settings.address, disk_timeout_us, seen_writes, input_name)

    def execute(self, calls: Sequence[Call]) -> list[Any]:
        """See :meth:`ordering.protocol.journal.Journal.execute`. A long ``Forget`` runs several scripts."""
        script_calls = [_script_calls(call) for call in calls]
        answers = iter(self._run_calls([script_call for of_call in script_calls for script_call in of_call]))
        answers_by_call = [[next(answers) for _ in of_call] for of_call in script_calls]
        for call, answered in zip(calls, answers_by_call, strict=True):
            while isinstance(call, Forget) and max(answered[-len(KINDS_BY_POSITION) :]) == _AT_ONCE:
                answered += self._run_calls(_script_calls(call))
        return [sum(answered) if isinstance(call, Forget) else answered[0] for call, answered in zip(calls, answers_by_call, strict=True)]

    def restore(self, key: JournalKey, facts: Sequence[Fact]) -> int:
        closing = max((fact.position for fact in facts if fact.kind == FactKind.CLOSED), default=0)
        calls = [_restore_call(key, fact) for fact in facts if fact.kind != FactKind.CLOSED]
        restored = sum(sum(self._run_calls(calls[first : first + _AT_ONCE], is_restore=True)) for first in range(0, len(calls), _AT_ONCE))
        self._run_calls(_script_calls(Close(key, closing)), is_restore=True)
        return len(calls) - restored

    def dump(self, key: JournalKey) -> list[Fact]:
        closed, *answers = self.execute([ReadClosed(key), *(Read(kind, key, 0, _LAST) for kind in _NAMES)])
        facts = [Fact(kind, *mark) for kind, marks in zip(_NAMES, answers, strict=True) for mark in marks]
        return sort_facts(facts + ([Fact(FactKind.CLOSED, closed, 0)] if closed else []))

    def read_silence(self, key: JournalKey) -> Silence | None:
        call = _ScriptCall("get", key, ("silence",), lambda text: parse_silence(text) if text else None)
        silence: Silence | None = self._run_calls([call])[0]
        return silence

    def check(self) -> None:
        """Raise UnreachableError if the server does not answer; nothing is written."""
        with translate_errors(self._address):
            self._client.ping()

    def has_facts(self, key: JournalKey) -> bool:
        """Return whether a partition has any entry; this call writes nothing."""
        with translate_errors(self._address):
            return bool(self._client.exists(_redis_key(key)))

    def read_or_set_fingerprint(self, topic: str, topic_id: str, settings: str, begins_anew: bool) -> tuple[str, bool]:
        """Return a topic's fingerprint, and whether this call set it. An existing one stays unless *begins_anew*: the topic is empty."""
        name = _fingerprint_key(topic, topic_id)
        known_settings, is_first = self._run_script(_FINGERPRINT_SCRIPT, [name], [settings, "anew" if begins_anew else ""])
        if not is_fingerprint(str(known_settings)):
            raise impossible_error(name, "the settings of the ordered topic cannot be read", self._input_name)
        return str(known_settings), bool(is_first)

    def read_fingerprint(self, topic: str, topic_id: str) -> str | None:
        """Return a topic's fingerprint, None if there is none; this call writes nothing. ImpossibleFactError: it is none."""
        name = _fingerprint_key(topic, topic_id)
        with translate_errors(self._address):
            try:
                known: Any = self._client.hget(name, "settings")
            except (redis.ResponseError, UnicodeDecodeError) as error:
                if isinstance(error, redis.ResponseError) and "WRONGTYPE" not in str(error):
                    raise
                known = ""
        if known is None or is_fingerprint(str(known)):
            return None if known is None else str(known)
        raise impossible_error(name, "the settings of the ordered topic cannot be read", self._input_name)

    def has_readable_fingerprint(self, topic: str, topic_id: str) -> bool:
        """Return whether a topic's fingerprint can be read, or there is none."""
        try:
            self.read_fingerprint(topic, topic_id)
        except ImpossibleFactError:
            return False
        return True

    def forget_eras(self) -> None:
        """Take each journal as it is from here on: this process has no facts of its own to give back."""
        self._seen_writes.clear()

    def delete_unreadable_fingerprint(self, topic: str, topic_id: str) -> None:
        """Delete a topic's fingerprint if it cannot be read: a start then takes the topic for one whose settings are not known."""
        name = _fingerprint_key(topic, topic_id)
        with translate_errors(self._address):
            entries = Entries()
            text = self._read_of_type(entries, name, lambda: self._client.hget(name, "settings"))
            if entries.of_other_type or (text is not None and not is_fingerprint(str(text))):
                self._client.delete(name)

    def withdraw(self, key: JournalKey, fact: Fact) -> None:
        """Remove a fact that no run has used, even below a closed position."""
        self._run_calls([_ScriptCall("withdraw", key, (_NAMES[FactKind(fact.kind)], _digits(fact.position)), int)])

    def read_notes(self, topic: str, topic_id: str) -> str:
        """Return the text kept about the facts of an ordered topic; empty if there is none."""
        with translate_errors(self._address):
            return str(self._client.hget(notes_key(topic, topic_id), "notes") or "")

    def replace_notes(self, topic: str, topic_id: str, known: str, notes: str) -> bool:
        """Replace the text if it still is the *known* one; return whether it was replaced."""
        return bool(self._run_script(_NOTES_SCRIPT, [notes_key(topic, topic_id)], [known, notes]))

    def close_connection(self) -> None:
        self._client.close()

    def _run_calls(self, script_calls: Sequence[_ScriptCall], is_restore: bool = False) -> list[Any]:
        keys = list(dict.fromkeys(call.key for call in script_calls))
        if not keys:
            return []
        seen_writes = [self._seen_writes.get(key, ("", 0)) for key in keys]
        arguments = [uuid.uuid4().hex, "1" if is_restore else "0"]
        arguments += [text for era, writes in seen_writes for text in (era, str(writes))]
        for call in script_calls:
            arguments += [call.name, str(keys.index(call.key) + 1), *call.arguments]
        verdict, details, answers = self._run_script(SCRIPT, [_redis_key(key) for key in keys], arguments)
        if verdict == "lost":
            raise self.wiped_error([keys[int(number) - 1] for number in details])
        self._seen_writes.update({key: (str(era), int(writes)) for key, (era, writes) in zip(keys, details, strict=True)})
        return [self._read_answer(call, answer) for call, answer in zip(script_calls, answers, strict=True)]

    def _read_answer(self, call: _ScriptCall, answer: Any) -> Any:
        try:
            return call.read(answer)
        except ValueError as error:
            place = f"{_redis_key(call.key)} ({call.name} {' '.join(call.arguments[:1])})"
            raise impossible_error(place, str(error), self._input_name) from None

    def find_entries(self, key: JournalKey, *, deletes: bool = True) -> Entries:
        """Return all entries of a partition as they stand, whatever they say; with *deletes*, keys that hold another type are deleted."""
        name, entries = _redis_key(key), Entries()
        with translate_errors(self._address):
            # Era and count of writes are the script's; they are read so that a hash whose era is no text is found too.
            texts = self._texts(entries, name, (*_SINGLE, "era", "writes"))
            entries.single |= {field: text for field, text in zip(_SINGLE, texts, strict=False) if text is not None}
            for kind in KINDS_BY_POSITION:
                positions = f"{name}:{_POSITIONS[kind]}"
                members = self._read_of_type(entries, positions, partial(self._client.zrangebylex, positions, "-", "+")) or []
                entries.by_kind[kind] = dict(zip(members, self._texts(entries, f"{name}:{_NAMES[kind]}", members), strict=True))
            if deletes and entries.of_other_type:
                self._client.delete(*entries.of_other_type)
        return entries

    def _texts(self, entries: Entries, name: str, fields: Sequence[str]) -> list[str | None]:
        # Without fields the key's type is looked at all the same.
        found = self._read_of_type(entries, name, lambda: self._client.hmget(name, list(fields) or ["0"]))
        return [None] * len(fields) if found is None else found[: len(fields)]

    def _read_of_type(self, entries: Entries, name: str, read: Callable[[], Any]) -> Any:
        """Return what *read* reads from a key; None, and the key noted, if it holds another type or no text."""
        try:
            return read()
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
        except UnicodeDecodeError:
            pass
        entries.of_other_type.append(name)
        return None

    def mend(self, key: JournalKey, wrong: Sequence[tuple[FactKind | str, str]], closed: int | None) -> None:
        """
        Remove *wrong* entries, (kind, position) or (name, ""), and set the first open position to *closed*, unless None. The journal gets a
        new era, so that all jobs give back what they know.
        """
        names = [(name, _NAMES[name]) if isinstance(name, FactKind) else (name, name) for name, _ in wrong]
        calls = [
            _ScriptCall("withdraw", key, (text, position), lambda _: None)
            if isinstance(kind, FactKind)
            else _ScriptCall("drop", key, (text,), lambda _: None)
            for (kind, text), (_, position) in zip(names, wrong, strict=True)
        ]
        if closed is not None:
            calls.append(_ScriptCall("reopen", key, (_digits(closed),), lambda _: None))
        self._run_calls([*calls, _ScriptCall("renew", key, (uuid.uuid4().hex,), lambda _: None)], is_restore=True)

    def wiped_error(self, keys: Sequence[JournalKey]) -> JournalWipedError:
        """Return the error that says that the journal has lost facts of these keys."""
        names = ", ".join(f"{key.job}-{key.partition}" for key in keys)
        what = f"the journal at {self._address} has lost what it had confirmed about {names}"
        fix = "nothing, while the job runs: it gives back what it knows; keep others from emptying this Redis"
        return JournalWipedError(what, where="redis.url", fix=fix)

    def _run_script(self, script: str, names: Sequence[str], arguments: Sequence[str]) -> Any:
        with translate_errors(self._address), self._client.pipeline(transaction=False) as pipe:
            pipe.eval(script, len(names), *names, *arguments)
            if self._disk_timeout_us:
                pipe.waitaof(1, 0, self._disk_timeout_us // MILLISECOND_US)
            try:
                answer, *disk = pipe.execute()
            except (redis.ResponseError, UnicodeDecodeError) as error:
                if isinstance(error, redis.ResponseError) and not any(text in str(error) for text in _OF_ANOTHER_TYPE):
                    raise
                raise impossible_error(names[0], f"an entry is no number or has another type ({error})", self._input_name) from None
        if disk and int(disk[0][0]) < 1:
            raise UnreachableError(
                f"Redis at {self._address} did not confirm within {format_duration(self._disk_timeout_us)} that the journal is on its disk",
                code="TG-JOURNAL-DISK",
                where="redis.url",
                fix="look at the server's disk; set appendfsync to always or everysec",
            )
        return answer


def _redis_key(key: JournalKey) -> str:
    # The braces keep all keys of a job in one slot of a cluster: one script may then touch them together.
    return f"tidegate:{{{key.job}}}:journal:{key.topic_id}:{key.partition}"


def is_fingerprint(text: str) -> bool:
    """Return whether a text has the form of a topic's fingerprint (:mod:`ingest.journal.topic_fingerprint`)."""
    try:
        fields = json.loads(text)
        settings, starts, start = fields["settings"], fields["starts"], fields["start"]
        topic_ids = json.loads(settings.get("topic_ids", "{}"))
        places = [name.rpartition("/")[2] for name in starts]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    are_texts = all(isinstance(table, dict) and all(isinstance(text, str) for text in table.values()) for table in (settings, topic_ids))
    are_places = isinstance(starts, dict) and all(place.isdecimal() and place.isascii() for place in places)
    return are_texts and are_places and all(type(offset) is int and offset >= 0 for offset in starts.values()) and _is_start(start)


def _is_start(fields: object) -> bool:
    """Return whether *fields* are those of an output start (:class:`tidegate.platform.checkpoint.output_start.Start`), or None."""
    if not isinstance(fields, dict):
        return fields is None
    is_known = fields.keys() <= {"text", "start_us"}
    return is_known and isinstance(fields.get("text", ""), str) and isinstance(fields.get("start_us", 0), int | None)


def notes_key(topic: str, topic_id: str) -> str:
    """Return the key of the text about the facts of an ordered topic."""
    return f"tidegate:{{{topic}}}:notes:{topic_id}"


def _script_calls(call: Call) -> list[_ScriptCall]:
    match call:
        case Raise():
            return [
                _ScriptCall(
                    "raise",
                    call.key,
                    (_NAMES[call.kind], *_all_digits(call.position, call.value_us)),
                    lambda text: parse_number(text) if text else None,
                )
            ]
        case Close():
            return [_ScriptCall("close", call.key, (_digits(call.below), *_planning_time(call)), lambda _: None)]
        case Read() if call.kind not in KINDS_BY_POSITION:
            return [_ScriptCall("get", call.key, (_NAMES[call.kind],), lambda text: _settled_within(call, text))]
        case Read():
            bounds = _NAMES[call.kind], *_all_digits(call.start, call.end), _planning_flag(call.kind)
            return [_ScriptCall("read", call.key, bounds, _parse_marks)]
        case Propose():
            proposed = _digits(call.position) + _digits(call.value)
            return [_ScriptCall("set_once", call.key, (_NAMES[call.kind], proposed), parse_settled)]
        case ReadClosed():
            return [_ScriptCall("get", call.key, ("closed",), lambda text: parse_number(text) if text else 0)]
        case RecordSilence():
            position, boot_id, *times = call.silence
            text = " ".join((_digits(position), boot_id, *_all_digits(*times)))
            return [_ScriptCall("note_silence", call.key, (_digits(position), text, boot_id), parse_silence)]
        case Forget():
            below, most = _digits(call.below), str(_AT_ONCE)
            return [_ScriptCall("forget", call.key, (_NAMES[kind], below, most, _planning_flag(kind)), int) for kind in KINDS_BY_POSITION]


def _restore_call(key: JournalKey, fact: Fact) -> _ScriptCall:
    kind = FactKind(fact.kind)
    if kind in KINDS_BY_POSITION:
        return _ScriptCall("restore", key, (_NAMES[kind], *_all_digits(fact.position, fact.value), _planning_flag(kind)), int)
    proposed = fact.position, fact.value
    return _ScriptCall("set_once", key, (_NAMES[kind], "".join(_all_digits(*proposed))), lambda text: int(parse_settled(text) == proposed))


def _planning_time(call: Close) -> tuple[str, str, str]:
    if call.planning_time is None:
        return "", "", ""
    kind, value_us, slack_us = call.planning_time
    return _NAMES[kind], _digits(value_us), _digits(max(value_us - slack_us, 0))


def _planning_flag(kind: FactKind) -> str:
    return "1" if kind.is_planning_time else "0"


def _fingerprint_key(topic: str, topic_id: str) -> str:
    return f"tidegate:{{{topic}}}:fingerprint:{topic_id}"


def parse_number(text: str | None) -> int:
    """Return a number of the journal. ValueError: it is none, or wider than 63 bits."""
    if text is None or len(text) != _DIGITS or not (text.isascii() and text.isdigit()) or int(text) > _LAST:
        raise ValueError(f"{_shorten(text)} is no number")
    return int(text)


def _shorten(text: str | None) -> str:
    return "nothing" if text is None else repr(text if len(text) <= 40 else f"{text[:40]}...")


def _parse_marks(flat: Sequence[str | None]) -> list[tuple[int, int]]:
    return [*zip(map(parse_number, flat[::2]), map(parse_number, flat[1::2]), strict=True)]


def parse_settled(text: str) -> tuple[int, int]:
    """Return the position and the value of a fact of which a partition has one."""
    return parse_number(text[:-_DIGITS]), parse_number(text[-_DIGITS:])


def _settled_within(call: Read, text: str) -> list[tuple[int, int]]:
    facts = [parse_settled(text)] if text else []
    return [fact for fact in facts if call.start <= fact[0] <= call.end]


def parse_silence(text: str) -> Silence:
    """Return a silence. ValueError: the text is none."""
    position, boot_id, since_us, arrival_us = text.split(" ")
    return Silence(parse_number(position), boot_id, parse_number(since_us), parse_number(arrival_us))


def _all_digits(*numbers: int) -> tuple[str, ...]:
    return tuple(map(_digits, numbers))


def _digits(number: int) -> str:
    if not 0 <= number < 2**63:
        raise TickRangeError(f"{number} cannot stand in the journal: it is negative or wider than 63 bits")
    return f"{number:019d}"


def _refuse_eviction(client: redis.Redis, address: str) -> None:
    memory: Any = client.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and int(memory.get("maxmemory", 0)) > 0:
        what = f"Redis at {address} drops keys when memory is short (maxmemory-policy {policy}): the journal could lose facts"
        fix = "set maxmemory-policy to noeviction, or give the journal a server of its own"
        raise RefusedError(what, code="TG-JOURNAL-EVICTION", where="redis.url", fix=fix, example="CONFIG SET maxmemory-policy noeviction")


def _must_confirm_disk(client: redis.Redis, settings: RedisSettings) -> bool:
    """Return whether to wait for the disk after each call; refuse or warn if the server can lose confirmed facts."""
    if settings.journal_durability == "memory":
        log = get_logger("ingest.journal")
        log.warning("a crash of Redis may lose journaled estimates", redis=settings.address, journal_durability="memory")
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
        if is_denial(error):
            raise
        return str(error)
    return None


def _syncs_every_write(client: redis.Redis) -> bool:
    try:
        options: Any = client.config_get("append*")
    except redis.ResponseError:  # hosted servers often forbid CONFIG
        return False
    return bool(options.get("appendonly") == "yes" and options.get("appendfsync") == "always")


def impossible_error(place: str, reason: str, input_name: str) -> ImpossibleFactError:
    """Return the error for a fact of the journal that cannot be."""
    fix = "a running job repairs entries that it knows; else rebuild the journal. Let nobody else write to tidegate:* in Redis"
    what = f"the journal of {place} says what cannot be: {reason}"
    return ImpossibleFactError(what, where=place, fix=fix, example=f"tidegate journal rebuild {input_name}")
