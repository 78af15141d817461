"""
The ordered topics of a test's inputs, in memory: what ingest would write of them, one piece for each block that was read.

Law: the events of each channel depend on the rows and the policies alone; pieces are only where batches can end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ordering.model.step import Step
from ordering.protocol.reader import Log
from query.columns.decoded_range import DecodedRange
from query.local.inputs import BadRecord, FileInput
from query.local.ordered_log import OrderedLog
from query.local.run_setup import RunSetup
from query.local.script import BoundScript

Piece = tuple[int, DecodedRange]
"""The number of a log, and its next range."""


@dataclass
class OrderedInputs:
    """The ranges of all logs in the order in which a query reads them, the steps of the model, and the records that cannot be used."""

    names: Sequence[str]
    pieces: list[Piece] = field(default_factory=list)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)


def order_inputs(script: BoundScript, setup: RunSetup, block_bytes: int) -> OrderedInputs:
    """Order the inputs of a script; a block of *block_bytes* becomes one piece. 1: each record does."""
    file_of = {file.name: file for file in setup.files}
    sources = [FileInput(file_of[scan.input], scan, setup.rules[scan.input], block_bytes) for scan in script.scans]
    logs = [OrderedLog() for _ in sources]
    ordered = OrderedInputs([source.name for source in sources])
    try:
        while reading := [index for index, source in enumerate(sources) if not source.is_ended]:
            index = min(reading, key=lambda number: sources[number].frontier.value)
            steps, bad = sources[index].read()
            logs[index].roster = sources[index].roster
            ordered.pieces.append((index, logs[index].append(steps)))
            ordered.steps += [(index, step) for step in steps]
            ordered.bad += bad
    finally:
        for source in sources:
            source.close()
    return ordered


def repeat_pieces(pieces: Sequence[Piece], end: int, count: int) -> list[Piece]:
    """Return the pieces of a log whose writer wrote the last *count* before *end* twice, as one does that was torn and began again."""
    return number_anew([*pieces[:end], *pieces[max(end - count, 0) : end], *pieces[end:]])


def tear_pieces(pieces: Sequence[Piece], end: int, count: int) -> list[Piece]:
    """
    Return the pieces of a log whose writer was torn off before *end*: of its last *count* pieces the CTIs are missing, since they are sent
    only after the events, and of the last one a part of the events. Another writer begins again with these pieces.
    """
    first = max(end - count, 0)
    both = number_anew([*pieces[:end], *pieces[first:]])
    return [*both[:first], *(_tear(piece, is_last=at == end - 1) for at, piece in enumerate(both[first:end], first)), *both[end:]]


def _tear(piece: Piece, *, is_last: bool) -> Piece:
    number, decoded = piece
    log = decoded.log
    kept = len(log) // 2 if is_last else len(log)
    torn = Log(log.log_offset[:kept], log.number[:kept], log.seq[:kept], log.system_us[:kept], [])
    return number, replace(decoded, log=torn, events=decoded.events[:kept])


def number_anew(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces with offsets that rise through each log."""
    next_offsets: dict[int, int] = {}
    renumbered = []
    for log, decoded in pieces:
        length = len(decoded.log.log_offset) + len(decoded.log.ctis)
        shift = next_offsets.get(log, 0) - (decoded.next_offset - length)
        ctis = [(offset + shift, cti) for offset, cti in decoded.log.ctis]
        moved = replace(decoded.log, log_offset=decoded.log.log_offset + shift, ctis=ctis)
        next_offsets[log] = decoded.next_offset + shift
        renumbered.append((log, replace(decoded, log=moved, next_offset=decoded.next_offset + shift)))
    return renumbered
