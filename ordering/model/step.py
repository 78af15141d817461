"""
The whole time model as one call: ``model.step(state, batch)`` walks one input partition a little further.

Law, level 1 (spec section 4): walk the input partition in offset order; after each event release what its new
watermark and arrival frontier allow. The events of a channel, with every byte and their numbers, depend on the log,
the settings and the journaled estimates alone - not on where batches are cut, nor on saving and restoring the state
between them.

No code here loops over events. Three facts make that possible:

- A late event is lifted to the floor first. So the floor never makes an event of its own partition out of order, an
  adjusted event never raises its timeline's maximum, and that maximum is a running maximum of the column.
- Watermarks only rise. So a binary search finds the row that releases an event: the first at which the floor, or the
  watermark of the event's timeline, is above it.
- An estimate before a record releases the lower part of what the record itself would have released. So both count as
  one row, and the order is the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ordering.errors import RefusedError
from ordering.model.cti_generation import Punctuator, plan_points
from ordering.model.events import Batch, Counts, Dropped, Reason, Released, Step
from ordering.model.judging import judge_batch
from ordering.model.progress import trace_time
from ordering.model.releasing import release_due
from ordering.model.settings import Facts, ModelSettings
from ordering.model.state import State
from ordering.model.substream_lists import list_substreams
from ordering.policies import Generation, Policies, Shape
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.ticks import NEVER

__all__ = ["Batch", "Counts", "Dropped", "Model", "Reason", "Released", "Step"]


class Model:
    """
    The time model of one input partition.

    Args:
        policies: The input's time policies.
        over: Whether timelines are substreams (OVER key) instead of the whole partition.
        output_partitions: Number of output partitions N.
        number: Roster number of the input partition.
        roster: All the input partitions, as CTIs announce them to readers; by default ``inputs`` many, version 1.
        inputs: Number of input partitions, where *roster* is not given.
        shape: What an event is in time.
        generation: When CTIs are written.
        joined_us: When this input partition joined others that were there before, microseconds: its events below are
            out of order, and its first CTI says so.

    Raises:
        SettingError: *over* without a late tolerance, or no output partition.
    """

    FORGET_FROM = 64
    """A table of timelines smaller than this is never searched for timelines to forget."""

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
        """Return the state before the first record."""
        return self._settings.new_state()

    def state_from(self, start_us: int, next_offset: int) -> State:
        """
        Return a state that walks from *next_offset* and releases only the events with s >= *start_us*, numbered from 0.

        They are those of a walk from the beginning, in the same order, if *next_offset* is not above the first offset
        whose arrival is *start_us* - early or later, and the first batch brings every journaled estimate and import up to
        there (their maximum). With early off that offset is the first; a reorder of -1 tick has no such law.
        """
        return self._settings.state_from(start_us, next_offset)

    def resume(self, promises: Mapping[int, Cti], next_offset: int, start_us: int = NEVER) -> State:
        """
        Return a state that goes on writing into existing channels if the state that wrote them is lost.

        Args:
            promises: The last valid CTI of the channel in each output partition; a channel without one is written from its
                first event.
            next_offset: Where the walk starts: as :meth:`state_from` demands for the least ``c`` of all, with *start_us* among
                them; the beginning if a channel has no CTI.
            start_us: The output start time of the run that made the channels, microseconds; by default it had none.
        """
        return self._settings.resumed_state(promises, next_offset, start_us)

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> State:
        """
        Return a saved state (see :meth:`ordering.model.state.State.save`).

        Raises:
            RefusedError: It was saved by a model with other policies, substreams, output partitions or shape.
            ProtocolError: It was saved by another version.
        """
        state = State.restore(head, chunks, self._settings.new_timelines(), self.policies.reorder_us)
        if state.model_fingerprint != self._settings.fingerprint:
            difference = f"the state was saved by another model: {state.model_fingerprint}; this one: {self._settings.fingerprint}"
            raise RefusedError(difference, code="TG-STATE-MODEL", fix="restore it with the model it was saved by, or begin anew")
        if not self.generation.list_substreams:
            state.unlisted_rows = []
        return state

    def repeat_last_cti(self, state: State) -> Cti | None:
        """
        Return the last promise in the first output partition once more, as the carrier of facts that no due CTI carries.

        Its c and n are as before, its position in the input is that of *state*. None if no CTI was written from this state.
        """
        return self._punctuator.repeat_last(state)

    def time_only_batch(self, end_offset: int, estimates: Facts = (), imports: Facts = (), finish: bool = False) -> Batch:
        """Return a batch for this model in which only time moves; see :class:`~ordering.model.events.Batch`."""
        return self._settings.time_only_batch(end_offset, estimates, imports, finish)

    def step(self, state: State, batch: Batch) -> Step:
        """
        Walk *batch*, which must start where *state* stands; change *state*; return what leaves.

        The arrays of *batch* are neither changed nor kept.

        Raises:
            BatchError: The columns differ in length, the batch does not start where *state* stands, or the input has ended.
        """
        settings = self._settings
        settings.check_batch(state, batch)
        time = trace_time(self.policies, self.joined_us, state, batch)
        judged, walk, counts = judge_batch(settings, state, batch, time)
        released, outflow, chunk = release_due(settings, state, judged, walk, time)
        ctis, chunk.ahead = self._punctuator.generate(state, plan_points(settings, state, judged, walk, time, outflow), outflow)
        state.next_offset, state.is_finished = int(batch.end_offset), batch.finish
        time.store(state)
        if self.generation.list_substreams and self.over:
            ctis = list_substreams(state, batch, ctis, walk, self.policies.reorder_us)
        state.add(chunk)
        state.drop_output_start()
        counts.released, counts.held = len(released), state.held_count
        state.forget_timelines(len(batch.offset), self.policies.reorder_us, self.FORGET_FROM)
        dropped = np.flatnonzero(judged.judgement.reason)
        return Step(released, Dropped(batch.offset[dropped], judged.judgement.reason[dropped]), ctis, counts)
