"""
The contents of recorded records as numbers, so that repetitions are found without their bytes, and the names of their keys.

Law: records of the same content have the same number. Others differ in it but by a chance of one in 2**64 for a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import orjson

from ordering.arrays import Ints
from ordering.tuning.disorder import Disorder, measure
from ordering.tuning.recording import Recording
from tidegate.records.files.fields import FieldPath

_BYTES = 8


@dataclass(frozen=True, slots=True)
class RecordedContents:
    """A recording, the number of each record's content in its order, and the names of its keys by their numbers."""

    recording: Recording
    content: Ints
    key_names: tuple[str, ...]

    @classmethod
    def of(cls, recording: Recording, content: Ints | None, key_names: tuple[str, ...] = ()) -> RecordedContents:
        """Return them; *content* is in the order in which the records were given, None: it was not read."""
        content = np.arange(len(recording)) if content is None else content
        return cls(recording, content if recording.order is None else content[recording.order], key_names)

    def measure(self) -> Disorder:
        """Return the disorder of the events."""
        return measure(self.recording, self.content, self.key_names)


class ContentNumbers:
    """Numbers contents."""

    def of_payloads(self, payloads: Sequence[bytes | None]) -> Ints:
        """Return the numbers of payloads, byte by byte."""
        digests = b"".join(blake2b(payload or b"", digest_size=_BYTES).digest() for payload in payloads)
        return np.frombuffer(digests, dtype=np.int64)

    def of_records(self, records: Sequence[bytes], apart: Sequence[FieldPath | None]) -> Ints:
        """Return the numbers of JSON records, the fields *apart* left out."""
        names = [path[0] for path in apart if path is not None and len(path) == 1]
        return self.of_payloads([_without(record, names) for record in records] if names else records)


def _without(record: bytes, names: Sequence[str]) -> bytes:
    try:
        fields = orjson.loads(record)
    except orjson.JSONDecodeError:
        return record
    if not isinstance(fields, dict):
        return record
    for name in names:
        fields.pop(name, None)
    return orjson.dumps(fields)
