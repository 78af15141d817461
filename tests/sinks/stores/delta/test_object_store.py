"""A Delta table on an object store that supports conditional puts: of two writers of one version one commits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.stores import kit
from support.stores.benches import DeltaOnS3Bench

pytestmark = pytest.mark.heavy


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DeltaOnS3Bench]:
    """An object store of this test."""
    with closing(DeltaOnS3Bench(tmp_path)) as made:
        yield made


def test_two_writers_at_once_commit_each_batch_once(bench: DeltaOnS3Bench) -> None:
    """Both make the table, and write the same batches of one partition, each from where the store stands."""
    stores = [bench.make("rides", kit.stream()) for _ in range(2)]

    def write(store: kit.Store) -> None:
        store.prepare()
        while kit.write_on(store, 0, 10) < 60:
            pass

    writers = [threading.Thread(target=write, args=(store,)) for store in stores]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    position = stores[0].progress([0])[0].position
    assert position >= 60
    kit.check_stands(bench, "rides", {0: position})
