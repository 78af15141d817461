"""The place of what makes a record unusable, and the bytes around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.unusable_place import find_unusable_place
from tidegate.basics.dead_letter_reasons import IngestReason


@pytest.mark.parametrize(
    ("reason", "payload", "told"),
    [
        (
            "malformed",
            b'{"at": 1,, "v": 2}',
            """malformed, at byte 9 of 18 (Expecting property name enclosed in double quotes): {"at": 1,, "v": 2}""",
        ),
        ("malformed", '{"ä": 1 "v": 2}'.encode(), """malformed, at byte 9 of 16 (Expecting ',' delimiter): {"ä": 1 "v": 2}"""),
        ("malformed", b'{"at": "\xff"}', 'malformed, at byte 8 of 11 (not UTF-8): {"at": "\\xff"}'),
        ("malformed", b"x" * 10 + b"\x1b[2J", "malformed, at byte 0 of 14 (Expecting value): xxxxxxxxxx\\u001b[2J"),
        ("timestamp", b'{"' + b"a" * 60 + b'": 1, "at": "soon"}', "timestamp, at byte 68 of 81: ..." + "a" * 34 + '": 1, "at": "soon"}'),
        ("timestamp", b'{"v": 1}', 'timestamp, at byte 0 of 8: {"v": 1}'),
        ("no_payload", None, "no_payload: it has no payload"),
    ],
)
def test_the_place_is_told_with_the_bytes_around_it(reason: str, payload: bytes | None, told: str) -> None:
    """Of JSON that breaks where it breaks, of a wrong time where its field is; a terminal obeys nothing of it."""
    assert str(find_unusable_place(IngestReason(reason), payload, "at", is_json=True)) == told


@given(st.binary(max_size=200), st.sampled_from([reason for reason in IngestReason if reason != IngestReason.NO_PAYLOAD]), st.booleans())
def test_any_payload_is_shown_in_one_line(payload: bytes, reason: IngestReason, is_json: bool) -> None:
    """Whatever the bytes are, and whatever is wrong with them."""
    place = find_unusable_place(reason, payload, "at", is_json=is_json)
    assert place.at_byte is not None
    assert 0 <= place.at_byte <= len(payload)
    assert "\n" not in str(place)
