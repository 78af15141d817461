"""
The letters of a range: records that are no events go to the dead-letter topic, events that a policy dropped to theirs if they are kept.

Law: each such record is written once for each time that its batch runs, and counted by its reason. The first one of a reason is logged.
"""

from __future__ import annotations

import numpy as np

from ingest.config import IngestPlan
from ordering.columns.framed_payloads import payload_of
from ordering.model.events import Dropped, Reason
from ordering.ticks import format_tick
from tidegate.basics.dead_letter_reasons import DropReason, IngestReason
from tidegate.platform.kafka.dead_letters import DeadLetter, DeadLetterWriter
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.worker import WORKER


def letter_writers(plan: IngestPlan) -> list[DeadLetterWriter]:
    """Return this worker's writer of dead letters and, if such events are kept, that of events that policies drop."""
    return [WORKER.dead_letters(plan.kafka, topic, bytes_max) for topic, bytes_max in _letter_topics(plan)]


def _letter_topics(plan: IngestPlan) -> list[tuple[str, int]]:
    topics = [(plan.settings.dead_letter_topic, plan.letter_bytes_max)]
    if plan.settings.dropped_topic is not None:
        topics.append((plan.settings.dropped_topic, plan.dropped_bytes_max))
    return topics


def drop_letter_writers(plan: IngestPlan) -> None:
    """Forget this worker's writers of letters: what waits in them is unknown after a failure."""
    for topic, bytes_max in _letter_topics(plan):
        WORKER.drop_dead_letters(plan.kafka, topic, bytes_max)


def send_dead_letter(plan: IngestPlan, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> str:
    """Send a record that is no event to the dead-letter topic; return its place."""
    origin = f"{topic}-{partition}@{plan.settings.places.text(int(records.offset[row]))}"
    letter_writers(plan)[0].send(DeadLetter(reason, origin, *_key_and_value(records, row)))
    return origin


def send_dropped(plan: IngestPlan, topic: str, partition: int, records: Records, dropped: Dropped) -> None:
    """Send the events that a policy dropped to their topic, each with the policy and the limit that it broke."""
    writer, places = letter_writers(plan)[-1], plan.settings.places
    rows = np.searchsorted(records.offset, dropped.offset).tolist()
    times = (dropped.event_time_us, dropped.arrival_us, dropped.limit_us)
    columns = [dropped.offset.tolist(), dropped.reason.tolist(), *(map(format_tick, column.tolist()) for column in times)]
    for row, offset, reason, *texts in zip(rows, *columns, strict=True):
        details = tuple(zip(("event_time", "arrival", "limit"), texts, strict=True))
        key, value = _key_and_value(records, row)
        name = DropReason[Reason(reason).name]
        writer.send(DeadLetter(name, f"{topic}-{partition}@{places.text(offset)}", key, value, details=details))


def _key_and_value(records: Records, row: int) -> tuple[memoryview | None, memoryview | None]:
    """Return a record's key and value without kept headers, as views: a record may be large, and a letter is cut before it is copied."""
    buffers = (column[row].as_buffer() for column in (records.key, records.value))
    key, value = (None if buffer is None else memoryview(buffer) for buffer in buffers)
    return key, payload_of(value) if records.is_framed and value is not None else value
