"""
Keeping the state of a stateful stage: in Spark's store as a small head and chunks, and in the worker's memory.

Law: ``load`` gives the value whose ``save`` Spark has committed last. A worker that saved it still has it in memory; it
is told from an older or failed attempt by a nonce that stands in the store beside it. Only what a batch changed is
written.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tidegate.runtime.deferred import Deferred

Value = TypeVar("Value")

REPORT_SCHEMA = "report string"
"""What a stateful stage returns: one JSON object a key and batch."""

_NONCE_BYTES = 16
_HEAD = -1
"""The cell of the head; chunks have numbers from 0 up."""
_kept: dict[tuple[str, int], tuple[bytes, object]] = {}


class Keeper(Generic[Value]):
    """
    The state of one key of a stateful stage.

    Args:
        handle: Spark's handle, as ``init`` of a processor gets it.
        job: Name of the job, unlike any other's on this machine: its checkpoint.
    """

    def __init__(self, handle: StatefulProcessorHandle, job: str) -> None:
        self._job = job
        # One variable: Spark works out the encoders of each anew in every task.
        self._cells = handle.getMapState("cells", "number bigint", "octets binary")

    def load(self, number: int, new: Callable[[], Value], restore: Callable[[bytes, dict[int, bytes]], Value]) -> Value:
        """
        Return the value last saved for *number*, or a *new* one. Until it is saved again it is no longer kept in memory.

        Args:
            number: What the value belongs to: a roster number or a bucket.
            new: Makes the value before the first record.
            restore: Makes it from head and chunks.
        """
        nonce, kept = _kept.pop((self._job, number), (b"", None))
        stored = self._cells.getValue((_HEAD,))
        if stored is None:
            return new()
        head = bytes(stored[0])
        if kept is not None and head[:_NONCE_BYTES] == nonce:
            return cast(Value, kept)
        chunks = {int(name[0]): bytes(chunk[0]) for name, chunk in self._cells.iterator()}
        del chunks[_HEAD]
        return restore(head[_NONCE_BYTES:], chunks)

    def save(self, number: int, value: Value, head: bytes, put: Mapping[int, bytes], delete: Iterable[int]) -> None:
        """Save the value: its head, the chunks that are new, and the numbers of those no longer needed."""
        for chunk in delete:
            self._cells.removeKey((chunk,))
        for chunk, octets in put.items():
            self._cells.updateValue((chunk,), (octets,))
        # The nonce is no part of any result: a batch that is run again may have another.
        nonce = uuid.uuid4().bytes
        self._cells.updateValue((_HEAD,), (nonce + head,))
        _kept[self._job, number] = nonce, value


@cache
def _set_apart() -> None:
    """Keep what this process has imported by now out of the collection after every task; once is enough."""
    gc.collect()
    gc.freeze()


class StageProcessor(StatefulProcessor):
    """
    A job's stateful stage in the words of Spark's interface.

    Args:
        stage: Makes the stage: something with ``reports(rows, keeper)`` that takes the ranges of one key and yields JSON, and
            ``complete()``, called once after the last key of a task and before Spark commits any of its state.
        job: The job's checkpoint.
    """

    def __init__(self, stage: Deferred, job: str) -> None:
        self._made, self._job = stage, job
        self._stage: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state. Called once per task, and once beside the driver, where nothing else is needed."""
        self._keeper: Keeper[Any] = Keeper(handle, self._job)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Hand the ranges of one key to the stage."""
        import pandas as pd

        if self._stage is None:
            self._stage = self._made()
        _set_apart()
        # Millions of short-lived message objects make Python's cycle collector run all the time and find nothing.
        gc.disable()
        ranges = [planned for frame in rows for planned in frame.itertuples(index=False)]
        yield pd.DataFrame({"report": list(self._stage.reports(ranges, self._keeper))})
        gc.collect(0)

    def close(self) -> None:
        """Let the stage end its task; readers and producers outlive it. What this raises fails the task, uncommitted."""
        if self._stage is not None:
            self._stage.complete()
