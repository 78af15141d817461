"""
Stores: destinations that keep, beside the rows, how far they have come.

A *stream* is what is copied into a store: the results of one topic. In each of its partitions the rows have *positions* 0, 1, 2, ...,
without gaps: the ``seq`` of the partition's channel. A row is known by (stream id, partition, position), for ever.

Law, the contract of every store: *after any number of calls of* ``write`` *, in any order, with old or new bounds, cut off by a crash,
with their answers lost, from several processes at once, each row below the store's progress stands once, the same each time, and no row
at or above it is there to stay.* So rows and progress stand together. A store with transactions changes both in one; another one makes
the rows idempotent, by a name that follows from the row or from the batch, and moves the progress after them. Either way progress is
compared and set: a batch that does not begin at the store's progress changes nothing.

A store that recognizes a repetition only if the batch has the same bounds notes the end of the batch (``Progress.end``) before its first
row can stand; the next batch then ends exactly there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.errors import TidegateError, UnreachableError
from sinks.parquet_columns import Column
from tidegate.settings.tables.redis import RedisSettings
from tidegate.settings.tables.stores.base import StoreSettings


class Stream(NamedTuple):
    """
    What is copied: ``name`` and ``id`` of a topic. The id tells a topic that was made again under its name from the one before.
    *partitions* is how many it has.
    """

    name: str
    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class StoreContext:
    """
    What a store gets when it is made: the output's name, the stream, name and type of each column of the query
    (:mod:`sinks.parquet_columns`), and the project's Redis, for the progress of a store that cannot keep it itself.
    """

    output: str
    stream: Stream
    columns: Sequence[Column]
    redis: RedisSettings = field(default_factory=RedisSettings, repr=False)


class Progress(NamedTuple):
    """
    How far one partition stands in a store.

    Args:
        stream_id: The stream whose rows these are.
        position: The first position that is not in the store.
        offset: The log offset at which a reader goes on to find that position; 0 is always right.
        end: The batch beginning at *position* may stand in part and must be repeated with exactly this end; None: any end will do.
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
        """Return at least one part as a whole."""
        if len(parts) == 1:
            return parts[0]
        plain = (np.concatenate([getattr(part, name) for part in parts]) for name in ("position", "offset", "system_us"))
        return Rows(*plain, *(pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("key", "value")))


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Rows to write at once: those with ``start <= position < end`` of a partition, without those that the store has refused.
    *offset* is where a reader goes on after them.
    """

    stream_id: str
    partition: int
    start: int
    end: int
    offset: int
    rows: Rows = field(repr=False)

    @property
    def progress(self) -> Progress:
        """The store's progress once the batch stands."""
        return Progress(self.stream_id, self.end, self.offset)

    def without(self, positions: Collection[int]) -> Batch:
        """Return the batch without some of its rows; its bounds stay."""
        return replace(self, rows=self.rows.select(~np.isin(self.rows.position, list(positions))))


class Refusal(NamedTuple):
    """A row that a store does not take, and why, in the store's words."""

    position: int
    reason: str


class RowsRefused(Exception):
    """
    A store does not take some rows of a batch, whatever is tried: a constraint, a type. The batch does not stand; without these rows it
    may be written. ``refusals`` need not be complete, but is never empty.
    """

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__(f"{len(refusals)} rows are refused, the first at {refusals[0].position}: {refusals[0].reason}")
        self.refusals = refusals


class StoreError(TidegateError):
    """A store cannot be used as it is set up: nobody but its user can change that, so the job stops."""

    exit_code = 3
    default_code = "TG-STORE"


class TryLater(UnreachableError):
    """A store asks to be left alone for so long, seconds."""

    def __init__(self, what: str, where: str, wait_s: float) -> None:
        super().__init__(what, code="TG-STORE-UNREACHABLE", where=where)
        self.wait_s = wait_s


class Store(Protocol):
    """
    One destination of one output. It is used by one thread; several may be open at once, also for the same partitions.

    Its methods raise UnreachableError if the store does not answer, or asks to try again: the call may be repeated, and is, after
    :meth:`close`, for as long as it takes. StoreError: repeating does not help.
    """

    @property
    def name(self) -> str:
        """The store as messages call it, without secrets: ``postgres localhost/rides.public.rides``."""

    def check(self) -> None:
        """Check columns, rights and settings against the store, without changing anything. Raises StoreError, also for what is missing and
        will not be made."""

    def prepare(self) -> None:
        """Make what is missing, or change what may be changed, and check the rest."""

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress of partitions; those of which nothing has been written are left out."""

    def write(self, batch: Batch) -> Progress:
        """
        Make a batch stand if it begins at the store's progress; return the store's progress after the call. If that is not the batch's,
        somebody else has written meanwhile and nothing was changed. Raises RowsRefused: the store does not take some rows.
        """

    def close(self) -> None:
        """Disconnect; the next call connects anew."""


class InstalledStore(StoreSettings):
    """The table ``[outputs.NAME.KIND]`` of a store that an installed package brings, as its entry point KIND in ``tidegate.stores``."""

    @abstractmethod
    def make_store(self, context: StoreContext) -> Store:
        """Return the store, not connected yet. What it needs is best imported here: settings are read by many commands."""


USERS_FIX = "give the user what it lacks, or correct the settings of this output"


def store_error(party: str, words: str, where: str, *, is_users: bool) -> StoreError | UnreachableError:
    """Return what the server or client *party* says as an error of the store *where*; *is_users*: only the user can mend it."""
    if is_users:
        return StoreError(f"{party} refuses: {words}", code="TG-STORE-REFUSED", where=where, fix=USERS_FIX)
    return UnreachableError(f"{party} does not answer as it should: {words}", code="TG-STORE-UNREACHABLE", where=where)


def find_refusals(rows: Rows, attempt: Callable[[Rows], str | None], limit: int = 1_000) -> list[Refusal]:
    """
    Return the rows that *attempt* refuses, at most *limit*, by halving. ``attempt(rows)`` returns the store's words if it does not take
    these rows beside those that it has taken before, and then leaves nothing of them; it returns None if it has taken them. All rows that
    are not returned have been taken, in order.
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
