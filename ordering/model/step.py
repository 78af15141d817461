"""
The whole time model as one call: ``model.step(state, batch)`` processes the next range of one input partition.

Law, level 1 (docs/reference/testing.md): process the input partition in offset order; after each record release the events that its new
watermark and arrival frontier allow. The events of a channel, with all bytes and numbers, depend only on the log, the settings and the
journaled estimates, not on batch boundaries or on saving and restoring the state.

No code here loops over events. Three facts make that possible:

- A late event is lifted to the floor first. So the floor never makes an event of its own partition out of order, an adjusted event never
  raises its timeline's maximum, and that maximum is a running maximum of the column.
- Watermarks only rise. So a binary search finds the row that releases an event: the first at which the floor, or the watermark of the
  event's timeline, is above it.
- An estimate before a record releases the lower part of the events that the record itself would have released. So both count as one row,
  and the order is the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ordering.columns.payload_columns import empty_column
from ordering.errors import RefusedError
from ordering.model.batch_time import trace_time
from ordering.model.cti_generation import Punctuator, plan_points
from ordering.model.events import Batch, Counts, Dropped, Reason, Released, Step
from ordering.model.judging import dropped_events, judge_batch
from ordering.model.releasing import release_due
from ordering.model.settings import ModelSettings
from ordering.model.state import ChannelPromise, OutputStart, State
from ordering.model.substream_lists import list_substreams
from ordering.model.timelines import Timelines
from ordering.policies import Generation, Policies, Shape
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.ticks import NEVER, TICK_MIN

__all__ = ["Batch", "Counts", "Dropped", "Model", "Reason", "Released", "Step"]

Facts = tuple[tuple[int, int], ...]

_NO_ROWS = np.empty(0, dtype=np.int64)


class Model:
    """
    The time model of one input partition.

    Args:
        over: Whether timelines are substreams (OVER key) instead of the whole partition.
        number: Roster number of the input partition.
        roster: The roster that CTIs announce to readers; by default version 1 with *inputs* input partitions.
        joined_us: When this input partition joined a running topic, microseconds: its events below are out of order, and its first CTI has
            this ``c``.

    Raises:
        SettingError: *over* without a late tolerance, or no output partition.
    """

    # A table of timelines smaller than this is never searched for timelines to forget.
    FORGET_FROM = 64

    def __init__(
        self,
        policies: Policies,
        over: bool,
        output_partitions: int,
        number: int = 0,
        roster: Roster | None = None,
        inputs: int = 1,
        *,
        shape: Shape = Shape.POINT,
        generation: Generation | None = None,
        joined_us: int = NEVER,
    ) -> None:
        self.policies, self.over, self.number, self.joined_us = policies, over, number, joined_us
        self.generation = generation or Generation()
        roster = roster or Roster(1, inputs, Spread.ALL if over else Spread.ONE, over)
        self._settings = ModelSettings(policies, over, output_partitions, number, roster, shape, self.generation, joined_us)
        self._punctuator = Punctuator(self._settings)

    def new_state(self) -> State:
        settings = self._settings
        return State(
            timelines=self._new_timelines(),
            seq=np.zeros(settings.output_partitions, dtype=np.int64),
            largest_us=np.full(settings.output_partitions, TICK_MIN, dtype=np.int64),
            ahead_counts=np.zeros(settings.output_partitions, dtype=np.int64),
            c=self.joined_us,
            model_fingerprint=settings.fingerprint,
        )

    def _new_timelines(self) -> Timelines:
        return Timelines(self._settings.output_partitions, self._settings.only_partition)

    def state_from(self, start_us: int, next_offset: int) -> State:
        """
        Return a state that starts at *next_offset* and releases only events from *start_us* on, numbered from 0. They are the events of a
        run from the beginning, in the same order, under two conditions: *next_offset* is not above the first offset whose arrival time is
        *start_us* - early or later (the first offset if early is off), and the first batch has the maximum of all journaled estimates and
        imports up to there. A reorder of -1 tick has no such law.
        """
        state = self.new_state()
        state.next_offset = next_offset
        every_channel_us = np.full(len(state.seq), start_us, dtype=np.int64)
        state.output_start = OutputStart(every_channel_us, np.zeros(len(state.seq), dtype=np.int64))
        return state

    def resume(self, promises: Mapping[int, Cti], next_offset: int, start_us: int = NEVER) -> State:
        """
        Return a state that continues writing existing channels if the state of their writer is lost.

        Args:
            promises: The last valid CTI of the channel in each output partition; a channel without one is written from its first event.
            next_offset: Where reading starts, as :meth:`state_from` requires for the smallest of all ``c`` and *start_us*; the beginning if
                a channel has no CTI.
            start_us: The output start time of the run that made the channels, microseconds; by default it had none.
        """
        state = self.state_from(start_us, next_offset)
        assert state.output_start is not None, "a state that starts somewhere has a start"
        for partition, cti in promises.items():
            state.output_start.start_us[partition], state.output_start.skip_counts[partition] = cti.c, cti.ahead
            state.seq[partition], state.largest_us[partition] = cti.n, cti.largest_us
            state.promises[partition] = ChannelPromise(cti.c, cti.n, cti.roster.version)
        return state

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> State:
        """
        Return a saved state (see :meth:`ordering.model.state.State.save`). RefusedError: it was saved by a model with other policies,
        substreams, output partitions or shape. ProtocolError: it was saved by another version.
        """
        state = State.restore(head, chunks, self._new_timelines(), self.policies.reorder_us)
        if state.model_fingerprint != self._settings.fingerprint:
            difference = f"the state was saved by another model: {state.model_fingerprint}; this one: {self._settings.fingerprint}"
            raise RefusedError(difference, code="TG-STATE-MODEL", fix="restore it with the model it was saved by, or begin anew")
        if not self.generation.list_substreams:
            state.unlisted_rows = []
        return state

    def repeat_last_cti(self, state: State) -> Cti | None:
        """
        Return the first output partition's last CTI once more, to carry facts if no CTI is due. It has the same c and n, and the current
        input position of *state*. None if no CTI was written from this state.
        """
        return self._punctuator.repeat_last(state)

    def time_only_batch(self, end_offset: int, estimates: Facts = (), imports: Facts = (), finish: bool = False) -> Batch:
        """Return a batch for this model in which only time advances; see :class:`~ordering.model.events.Batch`."""
        return Batch(
            offset=_NO_ROWS,
            arrival_us=_NO_ROWS,
            event_time_us=_NO_ROWS,
            readable=np.empty(0, dtype=np.bool_),
            substream=pa.array([], type=pa.binary()) if self.over else None,
            key=empty_column(),
            value=empty_column(),
            end_offset=end_offset,
            estimates=estimates,
            finish=finish,
            imports=imports,
            end_us=_NO_ROWS if self._settings.shape is Shape.INTERVAL else None,
            start_us=_NO_ROWS if self._settings.shape is Shape.EDGE else None,
        )

    def step(self, state: State, batch: Batch) -> Step:
        """
        Process *batch*, which must start at the position of *state*; update *state*; return the released events and CTIs. The arrays of
        *batch* are neither changed nor kept. BatchError: its columns differ in length, it starts elsewhere, or the input has ended.
        """
        settings = self._settings
        settings.check_batch(state, batch)
        time = trace_time(self.policies, self.joined_us, state, batch)
        judged, walk, counts = judge_batch(settings, state, batch, time)
        released, outflow, chunk = release_due(settings, state, judged, walk, time)
        planned = plan_points(settings, state, judged, walk, time, outflow)
        planned.store(state)
        ctis, chunk.ahead = self._punctuator.generate(state, planned.points, outflow)
        state.next_offset, state.is_finished = int(batch.end_offset), batch.finish
        time.store(state)
        if self.generation.list_substreams and self.over:
            ctis = list_substreams(state, batch, ctis, walk, self.policies.reorder_us)
        # Only now: the steps above must see the chunks of earlier batches only.
        state.add(chunk)
        state.drop_output_start()
        counts.released, counts.held = len(released), state.held_count
        state.forget_timelines(len(batch.offset), self.policies.reorder_us, self.FORGET_FROM)
        return Step(released, dropped_events(self.policies, judged, walk, time), ctis, counts)
