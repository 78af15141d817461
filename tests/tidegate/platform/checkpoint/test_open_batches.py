"""Spans of open batches."""

from __future__ import annotations

from tidegate.platform.checkpoint.open_batches import GrowingSpans


def test_the_first_batches_of_a_process_are_short() -> None:
    """Each lasts twice as long as the one before, and none longer than is set."""
    spans = GrowingSpans()
    assert [spans.take_s(5.0) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert GrowingSpans().take_s(0.2) == 0.2
