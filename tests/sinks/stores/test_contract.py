"""The contract of stores (``sinks.stores.base``), on the real server of each store."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

import pytest
from support.cutting_proxy import CuttingProxy
from support.stores import kit
from support.stores.benches import BENCHES, EVERY_BENCH, HttpBench, SqliteBench
from support.stores.kit import Bench

from sinks.stores.base import ClearableStore, Progress, StoreError, Stream

pytestmark = pytest.mark.heavy
_number = itertools.count()
EVERY = bool(os.environ.get("TIDEGATE_TEST_ALL_CASES"))
STEPS = 60 if EVERY else 40


@pytest.fixture(scope="module", params=EVERY_BENCH)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Each store, with its server."""
    made = BENCHES[request.param](tmp_path_factory.mktemp("store"))
    yield made
    made.close()


@pytest.fixture
def target() -> str:
    """A table, prefix or folder that nobody else has."""
    return f"results_{next(_number)}"


def test_a_new_store_has_no_progress_and_is_made_once(bench: Bench, target: str) -> None:
    """Preparing makes what is missing; doing it again, from another connection, changes nothing; a check alone makes nothing."""
    first, second = bench.make(target, kit.stream()), bench.make(target, kit.stream())
    first.check()
    for store in (first, second, first):
        store.prepare()
        assert store.progress([0, 1, 2]) == {}
    second.check()
    for store in (first, second):
        store.close()
    kit.check_stands(bench, target, {})


def test_a_batch_stands_with_its_progress(bench: Bench, target: str) -> None:
    """What was written is there, with the offset at which a reader goes on; a new connection finds both."""
    store = bench.make(target, kit.stream())
    store.prepare()
    written = store.write(kit.batch_of(kit.stream().id, 1, 0, 25))
    assert (written.stream_id, written.position, written.offset) == (kit.stream().id, 25, 73)
    store.close()
    again = bench.make(target, kit.stream())
    found = again.progress([0, 1])
    assert {partition: progress[:3] for partition, progress in found.items()} == {1: (kit.stream().id, 25, 73)}
    again.close()
    kit.check_stands(bench, target, {1: 25})


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3))])
def test_repeated_stale_and_early_batches_change_nothing(bench: Bench, target: str, seed: int) -> None:
    """Three writers that do not know of each other: each row below the progress stands once, none above it."""
    kit.check_stands(bench, target, kit.walk(bench, target, seed, STEPS))


def test_streams_do_not_share_their_progress(bench: Bench, target: str) -> None:
    """A second topic into the same target has a progress of its own; one made again under the old name finds the old one's id."""
    first, second = bench.make(target, kit.stream()), bench.make(target, kit.stream("others"))
    again = bench.make(target, Stream("results", "another id", kit.PARTITIONS))
    first.prepare()
    first.write(kit.batch_of(kit.stream().id, 0, 0, 10))
    second.prepare()
    assert second.progress([0]) == {}
    again.prepare()
    assert again.progress([0])[0].stream_id == kit.stream().id
    assert again.write(kit.batch_of("another id", 0, 10, 20))[:2] == (kit.stream().id, 10), "rows of another topic are not taken"
    for store in (first, second, again):
        store.close()
    kit.check_stands(bench, target, {0: 10})


# With the answer lost, what was written may stand or not. Lost requests too are met by a job: tests/integration/sinks/test_kills.py.
@pytest.mark.parametrize("towards", [pytest.param("server", marks=pytest.mark.deep), "client"])
def test_a_cut_line_loses_and_doubles_nothing(bench: Bench, target: str, towards: str) -> None:
    """The line breaks anywhere, also between a commit and its answer; writing on from the progress mends it."""
    if bench.port is None:
        return
    dice, proxy = random.Random(towards), CuttingProxy(bench.port)
    store = bench.make(target, kit.stream(), proxy.port)
    failures = 0
    sizes = []
    for turn in (1, 2, 3):
        before = proxy.passed[towards]
        kit.insist(store, 0, 40 * turn, 40)
        sizes.append(proxy.passed[towards] - before)
    # Stores differ in how much they send: most cuts fall into a batch or into its answer. A busy proxy counts some of it late.
    octets = sorted(sizes)[1]
    for turn in range(4, 29):
        proxy.cut_after(dice.randint(1, 2 * octets), towards)
        failures += kit.insist(store, 0, 40 * turn, 40)
    position = store.progress([0])[0].position
    store.close()
    proxy.close()
    assert proxy.cuts >= 10, "the line was cut"
    assert failures >= 5, "and some calls failed by it"
    kit.check_stands(bench, target, {0: position})


def test_progress_is_a_value() -> None:
    """Progress compares by its fields, so that a copier can tell whose batch stands."""
    assert Progress("a", 1, 2) == Progress("a", 1, 2) != Progress("a", 1, 3)


def test_rows_that_are_cleared_can_be_written_again(bench: Bench, target: str) -> None:
    """``tidegate reset --rows``: nothing stands, clearing once more does nothing, and a topic of the name begins anew."""
    store = bench.make(target, kit.stream())
    if not isinstance(store, ClearableStore):
        assert isinstance(bench, HttpBench | SqliteBench), "a receiver takes nothing back, and the example is a small one"
        store.close()
        return
    assert store.count_clearable() is None, "there is nothing yet"
    store.prepare()
    for end, start in ((10, 0), (25, 10)):
        store.write(kit.batch_of(kit.stream().id, 1, start, end))
    store.close()
    unconnected = bench.make(target, Stream(kit.stream().name, "", 0))
    assert isinstance(unconnected, ClearableStore)
    assert unconnected.count_clearable() == 25
    for _ in range(2):
        unconnected.clear()
    unconnected.close()
    again = bench.make(target, Stream(kit.stream().name, "another id", kit.PARTITIONS))
    again.prepare()
    assert again.progress([0, 1, 2]) == {}
    assert bench.read(target) == []
    assert again.write(kit.batch_of("another id", 1, 0, 7))[:2] == ("another id", 7)
    again.close()
    kit.check_stands(bench, target, {1: 7})


def test_rows_of_two_topics_are_not_cleared(bench: Bench, target: str) -> None:
    """They cannot be told apart."""
    stores = [bench.make(target, stream) for stream in (kit.stream(), kit.stream("others"))]
    if not isinstance(stores[0], ClearableStore):
        return
    for partition, (store, stream) in enumerate(zip(stores, (kit.stream(), kit.stream("others")), strict=True)):
        store.prepare()
        store.write(kit.batch_of(stream.id, partition, 0, 5))
    with pytest.raises(StoreError) as refused:
        stores[0].clear()
    assert refused.value.code == "TG-RESET-ROWS"
    for store in stores:
        store.close()
    assert len(bench.read(target)) >= 5
