"""Rows of ordered topics and of result topics, as traces name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from query.verify.because import payload_of
from query.verify.rows import ResultRow
from tidegate.ordered_topic.events import OrderedEvents


def rows_of(events: OrderedEvents, topic: str, partition: int) -> Iterator[ResultRow]:
    """Yield events of a partition as rows."""
    for index in range(len(events)):
        yield row_at(events, index, topic, partition)


def row_at(events: OrderedEvents, index: int, topic: str, partition: int) -> ResultRow:
    """Return one event of a partition as a row."""
    times = int(events.seq[index]), int(events.system_us[index])
    return ResultRow(*times, events.key[index].as_py(), events.value[index].as_py(), f"{topic}-{partition}@{int(events.log_offset[index])}")


def text_of(data: bytes | None) -> str | None:
    """Return a key as text; what is no UTF-8 is escaped."""
    return None if data is None else data.decode(errors="backslashreplace")


def shown(value: bytes | None) -> Any:
    """Return a payload as it is shown: a value of JSON, else text."""
    payload = payload_of(value)
    return payload if payload is not None else text_of(value)
