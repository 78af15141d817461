"""What stands in Redis, read back: each result as it was written, each change of a key, and what is written meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis
from support.valkey_server import Server

from sinks.stores.base import Batch, Rows, StoreContext, Stream
from sinks.stores.reading import Standing
from sinks.stores.redis.store import RedisStore
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings

pytestmark = pytest.mark.heavy
COLUMNS = (("car", "nvarchar(max)"), ("fixes", "bigint"), ("speed", "float"), ("more", "record"))
KINDS: dict[str, dict[str, Any]] = {
    "hash": {"primary_key": ["car"]},
    "string": {"primary_key": ["car"]},
    "stream": {},
    "sorted_set": {"primary_key": ["car"], "score": "speed"},
}


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """Any user's client; each test finds the server empty."""
    with redis.Redis(port=server.port) as made:
        made.flushall()
        yield made


def store_of(server: Server, kind: str, topic: str = "rides", **given: Any) -> RedisStore:
    """Return a store of the output ``[r]?*``, whose name is a pattern to Redis."""
    settings = {"url": f"redis://127.0.0.1:{server.port}/0", "kind": kind, "key_prefix": "[r]?*:", **KINDS[kind], **given}
    return RedisStore(StoreContext("rides", Stream(topic, "id", 2), COLUMNS), RedisStoreSettings.model_validate(settings))


def batch_of(partition: int, start: int, cars: Sequence[str]) -> Batch:
    """Return results as the batch of a partition that begins at *start*; all that can be in a result is in one of them."""
    position, more = np.arange(start, start + len(cars)), [None, {"a": 'ü"\n'}, {}]
    fields = [(car, at, at / 4, more[at % 3]) for at, car in zip(position.tolist(), cars, strict=True)]
    values = [json.dumps(dict(zip(("car", "fixes", "speed", "more"), row, strict=True)), separators=(",", ":")).encode() for row in fields]
    rows = Rows(position, position, position, pa.nulls(len(cars), pa.binary()), pa.array(values, pa.binary()))
    return Batch("id", partition, start, start + len(cars), start + len(cars), rows)


def standing_of(store: RedisStore) -> tuple[list[dict[str, Any]], Standing]:
    """Return the rows that stand, in an order of their own, with how far they go."""
    found: list[dict[str, Any]] = []
    standing = store.reader().read(lambda rows: found.extend(rows.to_pylist()))
    store.close()
    return sorted(found, key=str), standing


CARS = ["a", "b:%", "Zür", "", "a b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_stands_as_the_reader_keeps_it(server: Server, client: redis.Redis, kind: str) -> None:
    """Of each key the last result; in a stream each; with the progress of all partitions, and nothing of other prefixes."""
    client.hset("[r]x*:other", "car", "no")
    client.set("r", "no")
    store, (first, second) = store_of(server, kind), (batch_of(0, 0, [*CARS, "a"]), batch_of(1, 0, ["z"]))
    for batch in (first, second):
        store.write(batch)
    kept = [row for batch in (first, second) for row in store.reader().keep(batch.rows, batch.partition).to_pylist()]
    found, standing = standing_of(store)
    # The first result of the car a was overwritten by its last.
    assert found == sorted(kept if kind == "stream" else kept[1:], key=str)
    assert {partition: progress.position for partition, progress in standing.progress.items()} == {0: 6, 1: 1} == standing.certain
    assert (standing.is_shared, standing.expires) == (False, False)


def test_more_than_one_piece_is_read(server: Server, client: redis.Redis) -> None:
    """Thousands of keys, entries and members."""
    cars = [f"car {number}" for number in range(5_300)]
    for kind in KINDS:
        client.flushall()
        store = store_of(server, kind)
        store.write(batch_of(0, 0, cars))
        assert len(standing_of(store)[0]) == len(cars), kind


CHANGES: list[tuple[str, Any]] = [
    ("hash", lambda client: client.hset("[r]?*:a", "fixes", "99")),
    ("hash", lambda client: client.hset("[r]?*:a", "stranger", "1")),
    ("hash", lambda client: client.hset("[r]?*:a", "car", "b")),
    ("hash", lambda client: client.hset("[r]?*:a", "more", b"\xff")),
    ("hash", lambda client: client.hdel("[r]?*:a", "fixes")),
    ("hash", lambda client: client.rename("[r]?*:a", "[r]?*:c")),
    ("hash", lambda client: (client.delete("[r]?*:a"), client.set("[r]?*:a", "text"))),
    ("string", lambda client: client.set("[r]?*:a", client.get("[r]?*:a").replace(b",", b", ", 1))),
    ("string", lambda client: client.set("[r]?*:a", client.get("[r]?*:a").replace(b"0", b"0.0", 1))),
    ("string", lambda client: client.set("[r]?*:a", b"{")),
    ("string", lambda client: client.set("[r]?*:a", b'{"car":"\xff"}')),
    ("string", lambda client: client.append("[r]?*:a", " ")),
    ("stream", lambda client: (client.xdel("[r]?*:0", "1-0"), client.xadd("[r]?*:0", {"car": "a"}))),
    ("sorted_set", lambda client: client.zadd("[r]?*:by_speed", {"a": 0.5})),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_whatever_is_changed_is_another_row(server: Server, client: redis.Redis, kind: str, change: Any) -> None:
    """One of two rows: the other stays as it was."""
    store, batch = store_of(server, kind), batch_of(0, 0, ["a", "b"])
    store.write(batch)
    kept = store.reader().keep(batch.rows, 0).to_pylist()
    change(client)
    found, _ = standing_of(store)
    assert len(found) == 2
    assert kept[0] not in found
    assert kept[1] in found


def test_what_is_written_meanwhile_may_stand_or_not(server: Server, client: redis.Redis) -> None:
    """The progress is that of the end, and says below which position all has been read."""
    store, writer = store_of(server, "stream"), store_of(server, "stream")
    writer.write(batch_of(0, 0, ["a"] * 100))
    standing = store.reader().read(lambda _: None if writer.progress([0])[0].position > 100 else write_on(writer))
    assert (standing.progress[0].position, standing.certain) == (130, {0: 100})
    for each in (store, writer):
        each.close()


def write_on(store: RedisStore) -> None:
    """Write some more results."""
    store.write(batch_of(0, 100, ["b"] * 30))


def test_results_of_other_topics_and_keys_that_expire_are_told(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    """Of neither can be said which rows must stand."""
    for topic in ("rides", "others"):
        store = store_of(server, "hash", topic, ttl="1h", durability="memory")
        store.write(batch_of(0, 0, [topic]))
    found, standing = standing_of(store)
    assert (len(found), standing.is_shared, standing.expires) == (2, True, True)
    assert {partition: progress.position for partition, progress in standing.progress.items()} == {0: 1}
