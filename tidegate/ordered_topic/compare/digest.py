"""
Digests of a channel's events, block by block: a comparison keeps these instead of the events.

Law: two sequences of events have equal digests exactly if they are equal byte for byte (up to a collision of SHA-256), wherever the logs
were cut. The digests of a billion events take some megabytes, so each topic is walked once; only a block that differs is read again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.protocol.wire import EVENT_HEADER_BYTES
from tidegate.ordered_topic.events import OrderedEvents

BLOCK_EVENTS = 4_096
_DIGEST_BYTES = 16


@dataclass(slots=True)
class _Streams:
    """The columns of a block, each hashed as one stream, so that the digest does not depend on where a log is cut."""

    # SHA-256 takes half the time of BLAKE2, because processors have instructions for it.
    hashes: list[Any] = field(default_factory=lambda: [hashlib.sha256() for _ in range(6)])

    def update(self, events: OrderedEvents) -> None:
        data = [_header_bytes(events.header), np.ascontiguousarray(events.stamp_ms)]
        for column in (events.key, events.value):
            # Lengths are hashed too: otherwise bytes could move from one value to the next. -1 distinguishes null from empty.
            lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
            data += [np.ascontiguousarray(lengths), _value_bytes(column)]
        for stream, part in zip(self.hashes, data, strict=True):
            stream.update(part)

    def digest(self) -> bytes:
        return hashlib.sha256(b"".join(stream.digest() for stream in self.hashes)).digest()[:_DIGEST_BYTES]


@dataclass(slots=True)
class ChannelDigest:
    """The digests of one channel's events."""

    # How many events there were.
    count: int = 0
    # The digest of each complete block.
    blocks: list[bytes] = field(default_factory=list)
    # For each block, also an incomplete one: the log offset to read it again from, and the seq of its first event.
    block_starts: list[tuple[int, int]] = field(default_factory=list)
    # Largest system timestamp.
    largest_us: int = 0
    _open: _Streams = field(default_factory=_Streams)

    def add(self, events: OrderedEvents) -> None:
        added = 0
        while added < len(events):
            block_fill = self.count % BLOCK_EVENTS
            piece = events.slice(added, min(added + BLOCK_EVENTS - block_fill, len(events)))
            offset = int(piece.log_offset.min())
            if block_fill:
                # The log offsets of accepted events need not rise: a carried event is accepted after later ones.
                self.block_starts[-1] = min(self.block_starts[-1][0], offset), self.block_starts[-1][1]
            else:
                self.block_starts.append((offset, int(piece.seq[0])))
            self._open.update(piece)
            self.count += len(piece)
            added += len(piece)
            if self.count % BLOCK_EVENTS == 0:
                self.blocks.append(self._open.digest())
                self._open = _Streams()
        if len(events):
            self.largest_us = max(self.largest_us, int(events.system_us.max()))

    def rest_digest(self) -> bytes:
        """Return the digest of the events after the last complete block."""
        return self._open.digest()


def find_differing_block(one: ChannelDigest, other: ChannelDigest) -> tuple[int, bool] | None:
    """
    Return the first block that differs, and whether to compare only the events that both channels have in it; None if the shorter channel
    is the beginning of the longer one.
    """
    common = min(len(one.blocks), len(other.blocks))
    for block in range(common):
        if one.blocks[block] != other.blocks[block]:
            return block, False
    if one.count == other.count:
        return None if one.rest_digest() == other.rest_digest() else (common, False)
    # The digests of the next block cover different numbers of events, so they do not show whether one is the beginning of the other.
    return (common, True) if min(one.count, other.count) > common * BLOCK_EVENTS else None


def _header_bytes(column: pa.FixedSizeBinaryArray) -> Any:
    data = column.buffers()[1]
    if not len(column) or data is None:
        return b""
    # Arrow's buffer is hashed without a copy; a slice shares it, hence the offset.
    return memoryview(data)[column.offset * EVENT_HEADER_BYTES : (column.offset + len(column)) * EVENT_HEADER_BYTES]


def _value_bytes(column: pa.BinaryArray) -> Any:
    if column.null_count:
        column = column.fill_null(b"")
    _, places, data = column.buffers()
    if not len(column) or data is None:
        return b""
    bounds = np.frombuffer(places, dtype=np.int32)
    return memoryview(data)[int(bounds[column.offset]) : int(bounds[column.offset + len(column)])]
