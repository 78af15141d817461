"""
Batches in a partition that no consumer can read, because their compressed bytes or their checksum are broken.
Law: such a batch is an error, never a gap. Records after it are read only if a user skips it (``tidegate skip``).
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError

from ordering.errors import RefusedError

_UNREADABLE = {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG, KafkaError.MSG_SIZE_TOO_LARGE}

# The advice for an ordered topic. Its records cannot be skipped: readers take a missing number for a lost event.
WRITE_ANEW = "write the ordered topic again from its raw topic, which gives the same events: add a second [inputs.NAME] over the raw topic "
WRITE_ANEW += "with an ordered_topic of its own, run ingest for it, and the query over it into a new output"


def is_unreadable(error: KafkaError | None) -> bool:
    """Return whether an error says that records exist and cannot be read."""
    return error is not None and error.code() in _UNREADABLE


def next_readable(is_readable: Callable[[int], bool], offset: int) -> int:
    """Return the first readable offset after the unreadable *offset*; only one batch is taken to be unreadable there."""
    step = 1
    while not is_readable(offset + step):
        step *= 2
    unreadable, readable = offset + step // 2, offset + step
    while readable - unreadable > 1:
        middle = (unreadable + readable) // 2
        if is_readable(middle):
            readable = middle
        else:
            unreadable = middle
    return readable


def unreadable_error(topic: str, partition: int, start: int, end: int, reason: str) -> RefusedError:
    """Return the error for the records from *start* to *end*, exclusive."""
    return RefusedError(
        f"no client can read the records of {topic}-{partition} from offset {start} to {end - 1}: {reason}",
        code="TG-RECORD-UNREADABLE",
        where=f"{topic}-{partition}@{start}",
        fix="bring the bytes back from a replica or a backup; or let ingest leave them out: tidegate skip, then start it again",
        example=f'tidegate skip INPUT {topic}-{partition}@{start} --until {end} --why "unreadable"',
    )


def error_of_ordered_topic(error: RefusedError) -> RefusedError:
    """Return the error with the advice for an ordered topic: that for raw topics does not help there. Other errors are returned as is."""
    if error.code not in ("TG-RECORD-UNREADABLE", "TG-RETENTION"):
        return error
    fix = WRITE_ANEW if error.code == "TG-RETENTION" else f"bring the bytes back from a replica or a backup; or {WRITE_ANEW}"
    return RefusedError(error.what, code=error.code, where=error.where, fix=fix, example='ordered_topic = "flights.ordered.anew"')
