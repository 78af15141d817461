"""
Where in its payload a record became unusable: the place of the first byte that is no JSON, or of the field that was asked for, and the
bytes around it.

Law: what is shown of a payload is one line of visible text, whatever the bytes are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.basics.visible_text import visible

# How many bytes are shown before and after the place.
_AROUND = 40


@dataclass(frozen=True, slots=True)
class UnusablePlace:
    """ """

    # Why the record is no event.
    reason: str
    # The place in the payload, from 0; None if there is no payload.
    at_byte: int | None
    # The payload's size.
    size_bytes: int
    # The bytes around the place, as visible text.
    around: str
    # What the reader of JSON says about it; empty if it is JSON.
    problem: str = ""

    def __str__(self) -> str:
        if self.at_byte is None:
            return f"{self.reason}: it has no payload"
        said = f" ({self.problem})" if self.problem else ""
        return f"{self.reason}, at byte {self.at_byte:,} of {self.size_bytes:,}{said}: {self.around}"


def find_unusable_place(reason: IngestReason, payload: bytes | None, field: str, *, is_json: bool) -> UnusablePlace:
    """Return the place in *payload* that explains *reason*; *field* is the last name of the path of the event time, or of the end."""
    if payload is None:
        return UnusablePlace(reason, None, 0, "")
    at_byte, problem = _bad_json(payload) if is_json and reason == IngestReason.MALFORMED else (_place_of(payload, field), "")
    start, end = max(at_byte - _AROUND, 0), at_byte + _AROUND
    # What is no UTF-8 is shown by its bytes.
    text = visible(payload[start:end].decode("utf-8", "backslashreplace"))
    around = f"{'...' if start else ''}{text}{'...' if end < len(payload) else ''}"
    return UnusablePlace(reason, at_byte, len(payload), around, problem)


def _bad_json(payload: bytes) -> tuple[int, str]:
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        return error.start, "not UTF-8"
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return len(text[: error.pos].encode()), error.msg
    except RecursionError:
        return 0, "nested too deeply"
    return 0, ""


def _place_of(payload: bytes, field: str) -> int:
    found = payload.find(json.dumps(field, ensure_ascii=False).encode(errors="replace")) if field else -1
    return max(found, 0)
