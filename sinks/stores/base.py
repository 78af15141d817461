"""
Stores: destinations that keep their progress beside the rows.

A *stream* is the results of one topic, which are copied into a store. In each of its partitions the rows have *positions* 0, 1, 2, ...,
without gaps: the ``seq`` of the partition's channel. So (stream id, partition, position) identifies a row for ever.

Law, the contract of every store: *after any number of calls of* ``write`` *, in any order, with old or new bounds, cut off by a crash,
with their answers lost, from several processes at once, each row below the store's progress stands once, the same each time, and no row
at or above it stays.* So rows and progress agree. A store with transactions changes both in one transaction. Another one makes the rows
idempotent, by a name that follows from the row or the batch, and moves the progress after them. Either way progress is moved by
compare-and-set: a batch that does not begin at the store's progress changes nothing.

A store that recognizes a repeated batch only by its bounds notes the end of the batch (``Progress.end``) before it writes the first row; a
repetition then has exactly this end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.errors import TidegateError, UnreachableError
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.settings.tables.stores.base import StoreSettings
from tidegate.records.result_columns import Column


class Stream(NamedTuple):
    """
    The results of one topic, by the topic's name and id, and the number of its partitions. A topic that is deleted and made again has
    another id.
    """

    name: str
    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class StoreContext:
    """
    The output of a store: its name, the stream, name and type of each column of the query (:mod:`tidegate.records.result_columns`), and the
    project's Redis, for a store that cannot keep its progress itself.
    """

    output: str
    stream: Stream
    columns: Sequence[Column]
    redis: RedisSettings = field(default_factory=RedisSettings, repr=False)


class Progress(NamedTuple):
    """
    The progress of one partition in a store.

    Args:
        stream_id: The id of the stream whose rows the store has.
        position: The first position that is not in the store.
        offset: A log offset at or before that of *position*; 0 is always right.
        end: The batch that begins at *position* may be written in part and must be repeated with exactly this end; None: it may have any
            end.
    """

    stream_id: str
    position: int
    offset: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """
    Consecutive results of one partition as columns: their positions, log offsets, System.Timestamps in microseconds, keys (null
    without one) and values, each a JSON object in UTF-8 with the columns of the query.
    """

    position: Ints
    offset: Ints
    system_us: Ints
    key: pa.BinaryArray
    value: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.position)

    @property
    def nbytes(self) -> int:
        return int(self.key.nbytes + self.value.nbytes)

    def slice(self, start: int, end: int) -> Rows:
        plain = (column[start:end] for column in (self.position, self.offset, self.system_us))
        return Rows(*plain, *(column.slice(start, max(end - start, 0)) for column in (self.key, self.value)))

    def select(self, is_wanted: Mask) -> Rows:
        mask = pa.array(is_wanted)
        plain = (column[is_wanted] for column in (self.position, self.offset, self.system_us))
        return Rows(*plain, *(column.filter(mask) for column in (self.key, self.value)))

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """Return the rows of all parts; there is at least one."""
        if len(parts) == 1:
            return parts[0]
        plain = (np.concatenate([getattr(part, name) for part in parts]) for name in ("position", "offset", "system_us"))
        return Rows(*plain, *(pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("key", "value")))


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Rows to write at once: those of a partition with ``start <= position < end``, without those that the store has refused. *offset* is the
    log offset after the last of them.
    """

    stream_id: str
    partition: int
    start: int
    end: int
    offset: int
    rows: Rows = field(repr=False)

    @property
    def progress(self) -> Progress:
        """The store's progress once the batch is written."""
        return Progress(self.stream_id, self.end, self.offset)

    def without(self, positions: Collection[int]) -> Batch:
        """Return the batch without some of its rows; its bounds stay."""
        return replace(self, rows=self.rows.select(~np.isin(self.rows.position, list(positions))))


class Refusal(NamedTuple):
    """A row that a store does not take, and the store's message."""

    position: int
    reason: str


class RowsRefused(Exception):
    """
    A store does not take some rows of a batch, for example because of a constraint or a type, and repeating does not help. Nothing of the
    batch is written; without these rows it may be. ``refusals`` need not be complete, but is never empty. ``fix`` says what makes the store
    take the first of them; empty if that is not known.
    """

    def __init__(self, refusals: Sequence[Refusal], fix: str = "") -> None:
        super().__init__(f"{len(refusals)} rows are refused, the first at {refusals[0].position}: {refusals[0].reason}")
        self.refusals, self.fix = refusals, fix


class StoreError(TidegateError):
    """A store cannot be used as it is set up. Only the user can change that, so the job stops."""

    exit_code = 3
    default_code = "TG-STORE"


class StoreLocked(UnreachableError):
    """A store answers, and something else keeps it from writing. ``fix`` says how to find that."""

    default_code = "TG-STORE-LOCKED"


class StoreFull(UnreachableError):
    """A store answers, and has no room: on its disk, in its memory, in its quota."""

    default_code = "TG-STORE-FULL"


class TryLater(UnreachableError):
    """A store asks to be tried again after *wait_s* seconds."""

    def __init__(self, what: str, where: str, wait_s: float) -> None:
        super().__init__(what, code="TG-STORE-UNREACHABLE", where=where)
        self.wait_s = wait_s


class Store(Protocol):
    """
    One destination of one output. It is used by one thread; several may be open at once, also for the same partitions.

    Its methods raise UnreachableError if the store does not answer or asks to try again: the copier closes the store and repeats the call
    until it succeeds. They raise StoreError if repeating does not help.
    """

    @property
    def name(self) -> str:
        """The store as messages call it, without secrets: ``postgres localhost/rides.public.rides``."""

    def check(self) -> None:
        """
        Check columns, rights and settings against the store, without changing anything. Raises StoreError, also if something is missing
        that :meth:`prepare` would not make.
        """

    def prepare(self) -> None:
        """Make or change tables and columns as far as the settings allow, and check the rest."""

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress of partitions; partitions of which nothing has been written are missing."""

    def write(self, batch: Batch) -> Progress:
        """
        Write a batch if it begins at the store's progress; return the store's progress after the call. If it is not ``batch.progress``,
        another writer was faster and this call has changed nothing. Raises RowsRefused: the store does not take some rows.
        """

    def close(self) -> None:
        """Disconnect; the next call connects anew."""


@runtime_checkable
class KeyedStore(Protocol):
    """A :class:`Store` whose rows have keys."""

    def null_refusals(self) -> Mapping[str, str]:
        """Return the columns of the key in which the store takes no NULL, and what makes it take one (empty: nothing does)."""


@runtime_checkable
class ClearableStore(Protocol):
    """A :class:`Store` whose rows ``tidegate reset --rows`` can delete, once the topic of its stream is gone and no copier runs."""

    def count_clearable(self) -> int | None:
        """
        Return how many rows :meth:`clear` would delete, None if there is neither a row nor a progress. Raises StoreError: they cannot be
        deleted, for lack of a right, or because results of other topics are among them.
        """

    def clear(self) -> None:
        """Delete all rows and the progress of the stream; what is gone already is no error."""


def shared_rows_error(where: str, others: Collection[str]) -> StoreError:
    """Return the error of :meth:`ClearableStore.count_clearable` where results of other topics are among the rows."""
    what = f"there are results of other topics too: {', '.join(sorted(others))}"
    return StoreError(what, code="TG-RESET-ROWS", where=where, fix="reset without --rows, and delete its rows yourself")


class InstalledStore(StoreSettings):
    """The table ``[outputs.NAME.KIND]`` of a store that an installed package brings, as its entry point KIND in ``tidegate.stores``."""

    @abstractmethod
    def make_store(self, context: StoreContext) -> Store:
        """Return the store, not connected yet. Import its client here: many commands read settings and need no store."""


# What servers, operating systems and object stores say if there is no room.
_FULL_WORDS = ("no space left", "disk quota exceeded", "not enough space", "insufficient storage", "used memory > 'maxmemory'")
USERS_FIX = "give the user what it lacks, or correct the settings of this output"


def store_error(party: str, message: str, where: str, *, is_users: bool, is_full: bool = False) -> StoreError | UnreachableError:
    """
    Return the error of the store *where* for a message of its server or client *party*; *is_users*: only the user can mend it; *is_full*:
    it has no room, and the job goes on once it has.
    """
    if is_full or any(word in message.lower() for word in _FULL_WORDS):
        return StoreFull(f"{party} has no room: {message}", where=where, fix="make room there; the job continues by itself")
    if is_users:
        return StoreError(f"{party} refuses: {message}", code="TG-STORE-REFUSED", where=where, fix=USERS_FIX)
    return UnreachableError(f"{party} does not answer as it should: {message}", code="TG-STORE-UNREACHABLE", where=where)


def find_refusals(rows: Rows, attempt: Callable[[Rows], str | None], limit: int = 1_000) -> list[Refusal]:
    """
    Return the rows that *attempt* refuses, at most *limit*, by halving.

    ``attempt(part)`` adds consecutive rows to those of earlier calls and returns None; or it adds none of them and returns the store's
    message. Unless *limit* is reached, all rows that are not returned have been added, in order.
    """
    found: list[Refusal] = []
    pending = [rows]
    while pending and len(found) < limit:
        part = pending.pop()
        reason = attempt(part)
        if reason is None:
            continue
        if len(part) == 1:
            found.append(Refusal(int(part.position[0]), reason))
            continue
        middle = len(part) // 2
        pending += [part.slice(middle, len(part)), part.slice(0, middle)]
    return found
