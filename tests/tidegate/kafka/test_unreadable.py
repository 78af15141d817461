"""Where an unreadable batch ends: found by asking, as no client can read its length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.unreadable import next_readable


@given(st.integers(0, 100), st.integers(1, 5_000))
def test_the_first_readable_offset_is_found_in_few_questions(start: int, length: int) -> None:
    """Whatever the length of the batch; questions grow with its logarithm."""
    asked: list[int] = []

    def is_readable(offset: int) -> bool:
        asked.append(offset)
        return offset >= start + length

    assert next_readable(is_readable, start) == start + length
    assert len(asked) <= 2 * length.bit_length() + 1
