"""ClickHouse killed at any moment while two jobs write into one table, whose batches stand part by part."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.stores import kit
from support.stores.benches import ClickHouseBench

from ordering.errors import UnreachableError

pytestmark = pytest.mark.heavy
KILLS = 60
TABLE = """
CREATE TABLE kit.results (
  partition Int64, number Int64, name Nullable(String), speed Nullable(Float64), at Nullable(DateTime64(6, 'UTC')), is_odd Nullable(Bool),
  more Nullable(String), _topic_id String, _partition Int32, _seq Int64
) ENGINE = MergeTree PARTITION BY number % 5 ORDER BY number SETTINGS non_replicated_deduplication_window = 10000
"""


def write_on(bench: ClickHouseBench, seed: int, is_over: threading.Event, failures: list[str]) -> None:
    """Write batches of any size to any partition, whatever fails."""
    dice, store = random.Random(seed), bench.make("results", kit.stream())
    while not is_over.is_set():
        try:
            kit.write_on(store, dice.randrange(kit.PARTITIONS), dice.randint(1, 40))
        except UnreachableError as error:
            failures.append(str(error))
            store.close()
            time.sleep(0.05)
    store.close()


@pytest.mark.deep
def test_a_server_killed_within_inserts(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Some parts of a batch stand, others do not: whoever goes on completes it; two jobs do so at once."""
    bench, is_over = ClickHouseBench(tmp_path), threading.Event()
    bench.execute("CREATE DATABASE kit")
    bench.execute(TABLE)
    failures: list[str] = []
    writers = [threading.Thread(target=write_on, args=(bench, seed, is_over, failures)) for seed in range(2)]
    for writer in writers:
        writer.start()
    dice = random.Random(3)
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 1.2))
        bench.kill()
        bench.start()
    is_over.set()
    for writer in writers:
        writer.join()
    record_property("kills", KILLS)
    store, positions = bench.make("results", kit.stream()), {}
    for partition in range(kit.PARTITIONS):
        # What the last kill has left half done is done now.
        positions[partition] = kit.write_on(store, partition, 1)
    store.close()
    assert len(failures) >= KILLS / 2, "it was met in the middle"
    assert sum(positions.values()) > KILLS
    kit.check_stands(bench, "results", positions)
    bench.close()
