"""Where an unreadable batch ends: found by asking, as no client can read its length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import RefusedError
from tidegate.platform.kafka.unreadable import error_of_ordered_topic, next_readable, unreadable_error


@given(st.integers(0, 100), st.integers(1, 5_000))
def test_the_first_readable_offset_is_found_in_few_questions(start: int, length: int) -> None:
    """Whatever the length of the batch; questions grow with its logarithm."""
    asked: list[int] = []

    def is_readable(offset: int) -> bool:
        asked.append(offset)
        return offset >= start + length

    assert next_readable(is_readable, start) == start + length
    assert len(asked) <= 2 * length.bit_length() + 1


def test_a_query_is_told_of_a_way_past_records_that_works_for_it() -> None:
    """Not of ``tidegate skip``, which is for raw topics; other errors stay as they are."""
    broken = error_of_ordered_topic(unreadable_error("a.ordered", 0, 5, 8, "broken"))
    assert (broken.code, broken.where) == ("TG-RECORD-UNREADABLE", "a.ordered-0@5")
    assert "tidegate skip" not in str(broken)
    assert "write the ordered topic again" in str(broken)
    lost = error_of_ordered_topic(RefusedError("deleted", code="TG-RETENTION", where="a.ordered-0@5", fix="ingest, started again"))
    assert "started again" not in str(lost)
    denied = RefusedError("no right", code="TG-KAFKA-DENIED")
    assert error_of_ordered_topic(denied) is denied
