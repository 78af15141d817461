"""Which open batches have task slots."""

from __future__ import annotations

import pytest

from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.launch.task_slots import TaskSlots, master_of


@pytest.mark.parametrize(
    ("master", "with_open_batches"),
    [
        ("local[*]", "local[64]"),
        ("local", "local[64]"),
        ("local[2]", "local[64]"),
        ("local[2,4]", "local[64,4]"),
        ("local[100]", "local[100]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_session_gets_slots_for_open_batches_by_itself(master: str, with_open_batches: str) -> None:
    """A task of an open batch keeps its slot and mostly waits: the number of cores is no bound for such tasks."""
    spark, closed = {"master": master}, {"rides": {"topic": "rides", "batch_span": "0s"}}
    assert master_of(Settings(spark=spark, inputs=closed, query={"batch_span": "0s"})) == master
    assert master_of(Settings(spark=spark, inputs=closed)) == with_open_batches
    assert master_of(Settings(spark=spark, inputs={"rides": {"topic": "rides"}}, query={"batch_span": "0s"})) == with_open_batches


def test_a_large_machine_keeps_its_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each of its cores."""
    monkeypatch.setattr("os.cpu_count", lambda: 96)
    assert master_of(Settings(spark={"master": "local[*]", "shuffle_partitions": 2}, inputs={"rides": {"topic": "rides"}})) == "local[96]"


def test_a_local_session_gets_the_slots_of_all_stages() -> None:
    """Two inputs, an output with a table and one without, 48 tasks each, and one for what hands out ranges."""
    tables = {"inputs": {"rides": {"topic": "rides"}, "zones": {"topic": "zones"}}, "outputs": {"tolls": {"topic": "tolls"}}}
    settings = Settings(spark={"master": "local[*]", "shuffle_partitions": 48}, **tables)
    master = master_of(settings)
    assert master == "local[193]"
    slots = TaskSlots()
    for job in ("ingest rides", "ingest zones", "query tolls", "query output"):
        assert slots.keep(job, 48, master) == ""


def test_a_slot_is_left_for_stages_that_keep_none() -> None:
    """Else what hands out the ranges of a batch would wait until another batch ends."""
    slots = TaskSlots()
    assert slots.keep("ingest rides", 2, "local[4]") == ""
    assert "need 5 task slots, and there are 4" in slots.keep("query tolls", 2, "local[4]")
    assert slots.keep("query tolls", 1, "local[4]") == ""
    assert slots.keep("query tolls", 1, "local[4]") == "", "it starts again"
    slots.release("ingest rides")
    assert slots.keep("query tolls", 3, "local[4]") == ""
    assert "only local[N]" in slots.keep("query tolls", 1, "yarn")
