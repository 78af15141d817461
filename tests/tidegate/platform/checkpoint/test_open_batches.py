"""Spans of open batches."""

from __future__ import annotations

from tidegate.platform.checkpoint.open_batches import GrowingSpans, OpenSpan


def test_the_first_batches_of_a_process_are_short() -> None:
    """Each lasts twice as long after its first record as the one before, and none longer than is set; a silent one as long as any."""
    spans = GrowingSpans()
    assert [end_s(spans.take(5.0, 0.0), has_read=True) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert end_s(GrowingSpans().take(0.25, 0.0), has_read=True) == 0.25
    spans = GrowingSpans()
    assert [end_s(spans.take(5.0, 0.0), has_read=False) for _ in range(5)] == [50.0] * 5


def end_s(span: OpenSpan, *, has_read: bool) -> float:
    """Return when a span is over."""
    return next(quarters / 4 for quarters in range(1_000) if span.is_over(quarters / 4, has_read=has_read))


def test_a_batch_is_over_a_span_after_its_first_record() -> None:
    """One without records lasts ten spans; one that met its first record late lasts a span from then, and not longer than ten."""
    busy, silent, late, last = (OpenSpan(30.0, 300.0, now_s=1_000.0) for _ in range(4))
    assert [busy.is_over(now_s, has_read=True) for now_s in (1_000.0, 1_029.9, 1_030.0)] == [False, False, True]
    assert [silent.is_over(now_s, has_read=False) for now_s in (1_030.0, 1_299.9, 1_300.0)] == [False, False, True]
    assert [late.is_over(now_s, has_read=now_s > 1_200) for now_s in (1_200.0, 1_210.0, 1_239.9, 1_240.0)] == [False, False, False, True]
    assert [last.is_over(now_s, has_read=now_s > 1_200) for now_s in (1_200.0, 1_290.0, 1_300.0)] == [False, False, True]
