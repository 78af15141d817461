"""When the JVM collects its garbage in silence."""

from __future__ import annotations

from tidegate.platform.spark.launch.silent_collection import SilentCollection


def test_garbage_is_collected_once_in_a_silence() -> None:
    """Not before the first batch, and not again before the next one; each batch begins the silence anew."""
    collection = SilentCollection(after_s=25.0)
    assert not collection.take_due(1_000.0)
    collection.note_batch(1_000.0)
    collection.note_batch(1_010.0)
    assert [collection.take_due(now_s) for now_s in (1_025.0, 1_034.9, 1_035.0, 1_036.0, 9_000.0)] == [False, False, True, False, False]
    collection.note_batch(9_000.0)
    assert collection.take_due(9_030.0)
