"""
Spilling: if held events need too much memory, their payloads move to memory-mapped files, whose pages the system may evict.

Law: only the place of the bytes changes. Each file is unlinked as soon as it is mapped, so its space is freed when the events are released
or the process ends in any way. If no file can be written, this is logged once and the events stay in memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa

from ordering.columns.payload_columns import Payload
from ordering.model.state import State
from tidegate.platform.observe.logs import get_logger

# Smaller pieces are not worth a file.
_PIECE_BYTES_MIN = 1 << 20
_log = get_logger("ingest.stage")
_warned: set[str] = set()


def spill(state: State, bytes_max: int) -> int:
    """Move the largest pieces of *state* to files until at most *bytes_max* payload bytes are in memory; return the bytes moved."""
    pieces = sorted((chunk.held.rows for chunk in state.all_chunks()), key=lambda rows: rows.payload_bytes)
    left, moved = sum(rows.payload_bytes for rows in pieces), 0
    while left > bytes_max and pieces and pieces[-1].payload_bytes >= _PIECE_BYTES_MIN:
        rows = pieces.pop()
        size = rows.payload_bytes
        try:
            rows.spill_payloads(_map_to_file)
        except OSError as error:
            if str(error) not in _warned:
                _log.warning("held events stay in memory: no file for them can be written", reason=str(error), folder=tempfile.gettempdir())
                _warned.add(str(error))
            break
        left, moved = left - size, moved + size
    return moved


def _map_to_file(key: Payload, value: Payload) -> tuple[Payload, Payload]:
    batch = pa.record_batch([key, value], names=["key", "value"])
    descriptor, path = tempfile.mkstemp(prefix="tidegate-held-")
    try:
        with os.fdopen(descriptor, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        read = pa.ipc.open_file(pa.memory_map(path)).get_batch(0)
    finally:
        Path(path).unlink()
    return read["key"], read["value"]
