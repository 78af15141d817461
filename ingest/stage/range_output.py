"""
What a walk writes: released events at once, and the CTIs above them once these are acknowledged, with the facts that wait for a CTI.

Law: events are written in the order of their numbers. If a skip has changed, they are compared with those of earlier attempts first, and
written only if all are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingest.stage.earlier_attempt import EarlierAttempt
from ingest.stage.fact_outbox import FactOutbox
from ingest.stage.pending_ctis import PendingCtis
from ordering.arrays import Ints
from ordering.model.events import Released
from ordering.model.step import Step
from ordering.policies import Generation
from ordering.protocol.punctuation import Cti
from tidegate.basics.fault_points import pause_at
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer
from tidegate.platform.settings.tables.inputs import InputSettings

# After so many bytes of events the waiting CTIs are written within a range, so that readers need not hold these events any longer.
_PROMISED_BYTES = 2**23


class RangeOutput:
    """
    The output of one input partition.

    Args:
        on_spent: Called with the step that has just taken time: ``order``, ``write`` or ``acknowledge``.
    """

    def __init__(self, settings: InputSettings, generation: Generation, producer: GaplessProducer, on_spent: Callable[[str], None]) -> None:
        self._topic, self._places, self._producer, self._on_spent = settings.ordered_topic, settings.places, producer, on_spent
        self._writer = ChannelWriter(producer, settings.ordered_topic, are_framed=bool(settings.headers))
        self._pending = PendingCtis(generation)
        # The facts of the present range.
        self.outbox: FactOutbox | None = None
        # Only if a skip has changed may a walk differ from an earlier attempt.
        self.earlier: EarlierAttempt | None = None
        # Compared events are written at the end of the range: only if no event in any output partition differs.
        self._compared: list[Released] = []
        # Bytes of events written since the last CTIs.
        self._unpromised_bytes = 0

    def accept(self, step: Step) -> None:
        """Write the events of a step; keep its CTIs until the events below them are acknowledged."""
        if self._unpromised_bytes >= _PROMISED_BYTES and self.earlier is None and not self._pending.lists_substreams:
            # Here the wait is short: most events of earlier pieces were acknowledged while this piece was judged.
            self._write_pending()
        self._pending.add(step.ctis)
        self._on_spent("order")
        if self.earlier is not None:
            self.earlier.check_events(step.released)
            self._compared.append(step.released)
            return
        self._writer.write_events(step.released)
        self._unpromised_bytes += step.released.value.nbytes
        self._on_spent("write")
        pause_at("piece written")
        if self._pending.is_full:
            self._write_pending()

    def write_compared(self, next_seqs: Ints) -> None:
        """Write the events of a walk that was compared with an earlier attempt. Raises RefusedError (TG-SKIP-PASSED): that wrote more."""
        if self.earlier is not None:
            self.earlier.check_end(next_seqs)
            for released in self._compared:
                self._writer.write_events(released)

    def pop_ctis(self, *, is_last: bool) -> list[Cti]:
        """Return the waiting CTIs with their facts. A CTI within an array says that its record is not yet judged."""
        assert self.outbox is not None, "a range begins with its facts"
        ctis = self.outbox.attach(self._pending.pop_all(), is_last=is_last)
        return [replace(cti, next_offset=self._places.offset_of(cti.next_offset)) for cti in ctis] if self._places.bits else ctis

    def _write_pending(self) -> None:
        """Write the waiting CTIs before the end of the range."""
        self._on_spent("order")
        write_ctis(self._producer, self._topic, self.pop_ctis(is_last=False))
        self._unpromised_bytes = 0
        self._on_spent("acknowledge")


def write_ctis(producer: GaplessProducer, topic: str, ctis: list[Cti]) -> None:
    """Wait until all events are acknowledged, then write the CTIs above them with their facts, and wait for these."""
    producer.flush(topic)
    pause_at("events acknowledged")
    ChannelWriter(producer, topic).write_ctis(ctis)
    pause_at("ctis sent")
    producer.flush(topic)
