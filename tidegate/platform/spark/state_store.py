"""
The state of a stateful stage: a small head and numbered chunks in Spark's store, and the object itself in the worker's memory.

Law: ``load`` returns the value that Spark committed last. The worker that saved it still has the object in memory and uses it if the nonces
in memory and store are equal; after an older or failed attempt they differ. By then the object may have gone further, as a repetition
would (:mod:`tidegate.platform.checkpoint.between_batches`). Only the changes since the last save are written.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tidegate.platform.spark.deferred import Deferred
from tidegate.platform.spark.launch.allocator import freed_memory
from tidegate.platform.spark.privates import select_state_key

if TYPE_CHECKING:  # the model is imported where there is state of it
    from ordering.model.state import Delta

Value = TypeVar("Value")

REPORT_SCHEMA = "report string"  # the output of a stateful stage: one JSON object per key and batch

_NONCE_BYTES = 16
# The cell of the head; chunks have numbers from 0 up. Part p of chunk n is in cell n + p * _PART.
_HEAD = -1
_PART = 2**40
# Schemas as objects: the JVM would parse a text again in every task.
_CELL_NUMBER = StructType([StructField("number", LongType())])
# Checkpoints hold cells under this name.
_CELL_BYTES = StructType([StructField("octets", BinaryType())])
# A larger chunk is stored in several cells. Spark's JVM has a small heap, and holds a cell some six times while it is stored, for two tasks
# at a time.
PART_BYTES = 2**23
# By job and number: the nonce, the value, and the number of cells of each chunk that has several.
_in_memory: dict[tuple[str, int], tuple[bytes, object, dict[int, int]]] = {}


class StateStore(Generic[Value]):
    """The state of one key of a stateful stage; *job* is the job's checkpoint, which is unique on this machine."""

    def __init__(self, handle: StatefulProcessorHandle, job: str) -> None:
        self._job = job
        # One state variable for everything: Spark derives the encoders of each variable again in every task.
        self._cells = handle.getMapState("cells", _CELL_NUMBER, _CELL_BYTES)
        # The number of cells of each chunk that has several, as in _in_memory, for the value that was loaded or saved last.
        self._parts: dict[int, int] = {}
        self._handle, self._key = handle, tuple[Any, ...]()

    def of_key(self, key: tuple[Any, ...]) -> Self:
        """Return the store of one key: Spark has chosen the key, until it hands over the rows of the next one."""
        own = copy(self)
        own._key, own._parts = key, {}
        return own

    def select(self) -> None:
        """Choose this store's key again, after Spark has handed over the rows of others."""
        select_state_key(self._handle, self._key)

    def load(self, number: int, new: Callable[[], Value], restore: Callable[[bytes, dict[int, bytes]], Value]) -> Value:
        """
        Return the value last saved for *number* (a roster number or a bucket), or a *new* one; *restore* makes it from head and chunks.

        The value leaves memory until it is saved again.
        """
        nonce, kept, self._parts = _in_memory.pop((self._job, number), (b"", None, {}))
        stored = self._cells.getValue((_HEAD,))
        if stored is None:
            return new()
        head = bytes(stored[0])
        if kept is not None and head[:_NONCE_BYTES] == nonce:
            return cast(Value, kept)
        return restore(head[_NONCE_BYTES:], self._chunks())

    def _chunks(self) -> dict[int, bytes]:
        # Cell by cell: Spark's iterator over values would send hundreds of them in one message.
        cells: dict[int, list[int]] = {}
        for cell in sorted(int(name[0]) for name in self._cells.keys()):  # noqa: SIM118 - it is no dictionary
            if cell != _HEAD:
                cells.setdefault(cell % _PART, []).append(cell)
        self._parts = {chunk: len(parts) for chunk, parts in cells.items() if len(parts) > 1}
        return {chunk: b"".join(map(self._octets, parts)) for chunk, parts in cells.items()}

    def _octets(self, cell: int) -> bytes:
        stored = self._cells.getValue((cell,))
        assert stored is not None, "the store has just said that there is such a cell"
        return bytes(stored[0])

    def save(self, number: int, value: Value, delta: Delta) -> None:
        """Save a value by writing its changes."""
        for chunk in delta.delete:
            self._remove(chunk, range(self._parts.pop(chunk, 1)))
        for chunk, data in delta.put.items():
            parts = max(-(-len(data) // PART_BYTES), 1)
            for part in range(parts):
                self._cells.updateValue((chunk + part * _PART,), (data[part * PART_BYTES : (part + 1) * PART_BYTES],))
            self._remove(chunk, range(parts, self._parts.pop(chunk, 1)))
            if parts > 1:
                self._parts[chunk] = parts
        # Random, but not part of any result: a repeated batch may have another nonce.
        nonce = uuid.uuid4().bytes
        self._cells.updateValue((_HEAD,), (nonce + delta.head,))
        _in_memory[self._job, number] = nonce, value, self._parts

    def _remove(self, chunk: int, parts: Iterable[int]) -> None:
        for part in parts:
            self._cells.removeKey((chunk + part * _PART,))


def forget_value(job: str, number: int) -> None:
    """Forget the value of *number* in this process, after it was changed beyond what was saved in a way that cannot be relied on."""
    _in_memory.pop((job, number), None)


@cache
def _freeze_imports() -> None:
    """Exclude imported modules from the garbage collection after every task; once per process."""
    gc.collect()
    gc.freeze()


class StageProcessor(StatefulProcessor):
    """
    A job's stateful stage as Spark calls it.

    *stage* makes an object with ``reports(rows, store)``, which takes the ranges of one key and yields JSON, and ``complete()``, called
    after the last key of a task and before Spark commits its state.
    """

    def __init__(self, stage: Deferred, job: str) -> None:
        self._make_stage, self._job = stage, job
        self._stage: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state. Called once per task, and once beside the driver, which needs nothing else."""
        self._store: StateStore[Any] = StateStore(handle, self._job)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        if self._stage is None:
            self._stage = self._make_stage()
        _freeze_imports()
        # Python's cycle collector would run all the time over millions of short-lived objects and find nothing.
        gc.disable()
        ranges = [planned for frame in rows for planned in frame.itertuples(index=False)]
        reports = list(self._stage.reports(ranges, self._store.of_key(key)))
        if reports:  # of an open batch the last key has all; Spark cannot convert an empty frame
            yield pd.DataFrame({"report": reports})
        gc.collect(0)

    def close(self) -> None:
        """End the task's work; readers and producers stay open. An exception here fails the task before its commit."""
        if self._stage is not None:
            self._stage.complete()
            freed_memory().give_back_in_silence(time.monotonic(), time.process_time())
