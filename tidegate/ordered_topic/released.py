"""
Released events as the columns of the ordered topic that they are written to.

Law: header, key, value and timestamp have the bytes that the writer gives them, so computed and standing events can be compared.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ordering.columns.payload_columns import to_arrow
from ordering.model.events import Released
from ordering.ticks import MILLISECOND_US
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.platform.kafka.writer import event_headers


def event_columns(released: Released, *, is_framed: bool = False) -> OrderedEvents:
    """Return released events with the bytes that they have in a topic; ``log_offset`` is their offset in the input partition."""
    key, value = (to_arrow(column).cast(pa.binary()) for column in (released.key, released.value))
    number = np.full(len(released), released.number, dtype=np.int64)
    stamp_ms = released.system_us // MILLISECOND_US
    return OrderedEvents(
        released.offset, number, released.seq, released.system_us, stamp_ms, event_headers(released), key, value, is_framed=is_framed
    )
