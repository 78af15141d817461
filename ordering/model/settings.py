"""
The settings of one input partition's model, and what follows from them alone: channels, fingerprint, checks of a batch.

Law: a state is bound to :attr:`ModelSettings.fingerprint`; the settings of CTI generation may change between two runs over one state.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ordering.arrays import Ints
from ordering.errors import BatchError, SettingError
from ordering.model.events import Batch
from ordering.model.state import State
from ordering.model.watermark import events_watermark_of
from ordering.policies import Action, Generation, Policies, Shape
from ordering.protocol.punctuation import Roster
from ordering.ticks import INFINITY, NEVER


@dataclass(frozen=True)
class ModelSettings:
    """The settings of one input partition's model; :class:`~ordering.model.step.Model` explains them and raises for wrong ones."""

    policies: Policies
    over: bool
    output_partitions: int
    number: int
    roster: Roster
    shape: Shape
    generation: Generation
    joined_us: int

    def __post_init__(self) -> None:
        if self.over and self.policies.late_us is None:
            what = 'late = "off" cannot stand with OVER: only the floor advances silent substreams'
            raise SettingError(what, where="late", fix="give late a duration")
        if self.output_partitions < 1:
            raise SettingError("there must be an output partition", where="output_partitions", fix="give 1 or more")

    @property
    def only_partition(self) -> int | None:
        return None if self.over else self.number % self.output_partitions

    @property
    def channels(self) -> list[int]:
        return list(range(self.output_partitions)) if self.only_partition is None else [self.only_partition]

    @property
    def fingerprint(self) -> str:
        """All settings that a state depends on, as readable text."""
        # Without the action that states of earlier versions do not name, so that they stay valid.
        is_known = {"early_action": self.policies.early_action is not Action.DROP}
        policies = ", ".join(f"{name}={value}" for name, value in asdict(self.policies).items() if is_known.get(name, True))
        return f"{policies}, over={self.over}, output_partitions={self.output_partitions}, number={self.number}, shape={self.shape}"

    def check_batch(self, state: State, batch: Batch) -> None:
        """Raise BatchError for a batch that would silently give wrong results (see ``Model.step``), at a cost independent of its size."""
        count, where = len(batch.offset), f"offset {state.next_offset}"
        columns = (batch.arrival_us, batch.event_time_us, batch.readable, batch.substream, batch.key, batch.value)
        optional = (batch.source_cti_us, batch.end_us, batch.start_us)
        if any(column is not None and len(column) != count for column in (*columns, *optional)):
            raise BatchError("the columns of a batch differ in length", where=where, fix="give every column one entry a record")
        if self.over and batch.substream is None:
            raise BatchError("a batch comes without substreams", where=where, fix="fill Batch.substream: the model has over=True")
        # Offsets rise within a batch, so its first and last one show where it starts and whether its end lies behind it.
        first, last = (int(batch.offset[0]), int(batch.offset[-1])) if count else (batch.end_offset, batch.end_offset - 1)
        if first < state.next_offset or batch.end_offset <= last:
            reach = f"the batch reaches from offset {first} to {last} and ends at {batch.end_offset}"
            raise BatchError(f"{reach}, the state stands at {state.next_offset}", where=where, fix="walk each offset once, in order")
        if state.is_finished:
            raise BatchError("a finished input has no further batches", where=where, fix="begin with Model.new_state()")

    def span_ends(self, batch: Batch, rows: int) -> Ints | None:
        """Return the end of each event's span: the end of an interval, infinity for an edge; None for points."""
        if self.shape is Shape.INTERVAL:
            return batch.end_us
        return np.full(rows, INFINITY, dtype=np.int64) if self.shape is Shape.EDGE else None

    def events_watermark_us(self, state: State) -> int:
        """Return the partition's watermark by its events alone; ``NEVER`` with OVER and before the first event."""
        if self.over or not len(state.timelines):
            return NEVER
        return events_watermark_of(int(state.timelines.largest_us[0]), self.policies.reorder_us)
