"""``tidegate verify`` on tables of Iceberg and ClickHouse and each kind of key in Valkey: as sinks filled them, and tampered with."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from support.stack import keyed_input
from support.stack.drawn_logs import draw
from support.stack.jobs import Workspace, workspace
from support.stack.topics import create, fresh, produce
from support.stack.verifying import run_verify, stage
from support.stores.benches import ClickHouseBench
from support.valkey_server import Server

from query.output_plan import columns_of
from sinks.copying.feed import PartitionFeed
from sinks.stores.base import Batch, Rows, RowsRefused, StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import load

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration
EVENTS, PARTITIONS = 4_000, 2
OUTPUT = """
[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"
"""
ICEBERG = """
[outputs.counts.iceberg]
table = "lake.counts"
catalog = {{ type = "sql", uri = "sqlite:///{folder}/catalog.db", warehouse = "file://{folder}/lake" }}
"""
REDIS = """
[outputs.counts.redis]
url = "redis://127.0.0.1:{port}/0"
key_prefix = "{kind}:"
on_error = "dead_letter"
"""
DELTA = """
[outputs.counts.delta]
path = "lake/counts"
"""
KINDS = {
    "hash": 'kind = "hash"\nprimary_key = ["k", "w"]',
    "string": 'kind = "string"\nprimary_key = ["k"]',
    "stream": 'kind = "stream"',
    "sorted_set": 'kind = "sorted_set"\nprimary_key = ["k"]\nscore = "total"',
    "latest": 'kind = "hash"\nprimary_key = ["k"]',
    "expiring": 'kind = "hash"\nprimary_key = ["k"]\nttl = "1d"',
}
QUERY = """
SELECT CAST(k AS nvarchar(max)) AS k, System.Timestamp() AS w, COUNT(*) AS n, SUM(CAST(v AS float)) AS total, MIN(v) AS least
INTO counts
FROM events TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
"""


@dataclass
class Scene:
    """A workspace whose query has ended."""

    space: Workspace
    topic: str
    redis: Server

    def configure(self, name: str, store: str) -> None:
        """Write a configuration with a store of its own."""
        text = (keyed_input.TABLES + OUTPUT).format(topic=self.topic)
        (self.space.folder / f"{name}.toml").write_text(text + store)

    def fill(self, name: str, store: str) -> None:
        """Copy the topic into that store."""
        self.configure(name, store)
        self.space.start("sink", "counts", "--until-end", "--config", f"{name}.toml").finish()

    def verify(self, name: str, exit_code: int = 0) -> dict[str, Any]:
        """Verify the output with that configuration; return what is told of its query, of the table alone what was published."""
        flags = ("--query", "counts=counts.sql", "--config", f"{name}.toml")
        told = stage(run_verify(self.space, "counts", *flags, exit_code=exit_code), "counts")
        told["table"] = next(each for each in told["published"] if each["kind"] == "table")
        return told


@pytest.fixture(scope="module")
def scene(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Ingest and a query, which have come to their end."""
    topic = create(stack.bootstrap, fresh("stores"), PARTITIONS)
    produce(stack.bootstrap, topic, draw(5, EVENTS, PARTITIONS, keys=("a", "bb", "Zür", None)))
    server = Server(tmp_path_factory.mktemp("valkey"))
    with workspace(tmp_path_factory.mktemp("stores"), stack, (keyed_input.TABLES + OUTPUT).format(topic=topic)) as space:
        space.script("counts.sql", QUERY)
        space.start("ingest", "events", "--until-end").finish()
        space.start("query", "counts.sql").finish()
        yield Scene(space, topic, server)
    server.kill()


def test_a_changed_and_a_deleted_row_of_an_iceberg_table_are_found(scene: Scene) -> None:
    """Both are commits of their own, as any writer may make them; the snapshot before them is equal again."""
    folder = scene.space.folder
    scene.fill("iceberg", ICEBERG.format(folder=folder))
    told = scene.verify("iceberg")
    topic = next(each for each in told["published"] if each["kind"] == "topic")
    assert told["table"]["rows"] == topic["rows"] > 50
    assert told["table"]["name"] == "iceberg lake.counts"
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
    table = catalog.load_table("lake.counts")
    before = table.current_snapshot()
    assert before is not None
    rows = table.scan().to_arrow()
    changed, gone = rows.filter(pc.equal(rows["k"], "a")).slice(0, 2).to_pylist()
    is_changed, is_gone = (pc.and_(pc.equal(rows["total"], row["total"]), pc.equal(rows["w"], row["w"])) for row in (changed, gone))
    more = pc.if_else(is_changed, pc.add(rows["n"], 1), rows["n"])
    tampered = rows.set_column(rows.column_names.index("n"), "n", more).filter(pc.invert(is_gone))
    assert len(tampered) == len(rows) - 1
    table.overwrite(tampered.cast(rows.schema))
    told = scene.verify("iceberg", 1)
    assert sorted(each["kind"] for each in told["differences"]) == ["changed", "missing"]
    assert all(each["where"] == "iceberg lake.counts" for each in told["differences"])
    assert f"column n: found {changed['n'] + 1}, expected {changed['n']}" in told["because"]
    with table.manage_snapshots() as back:
        back.rollback_to_snapshot(before.snapshot_id)
    scene.verify("iceberg")


def test_a_changed_and_a_deleted_row_of_a_clickhouse_table_are_found(scene: Scene, tmp_path: Path) -> None:
    """Rows of another topic in the same table are none of this one's; what a person adds is strange."""
    with contextlib.closing(ClickHouseBench(tmp_path)) as server:
        scene.fill("clickhouse", server.table("counts").replace("outputs.results", "outputs.counts"))
        told = scene.verify("clickhouse")
        topic = next(each for each in told["published"] if each["kind"] == "topic")
        assert told["table"]["rows"] == topic["rows"] > 50
        server.execute("INSERT INTO kit.counts_tidegate_progress (topic, topic_id) SETTINGS async_insert = 0 VALUES ('others', 'their id')")
        server.execute("INSERT INTO kit.counts (k, _topic_id) SETTINGS async_insert = 0 VALUES ('a', 'their id')")
        scene.verify("clickhouse")
        changed, gone = server.read("counts")[:2]
        at, place = "_topic_id != 'their id' AND _partition = {_partition} AND _seq = {_seq}", "SETTINGS mutations_sync = 2"
        server.execute(f"ALTER TABLE kit.counts UPDATE n = n + 1 WHERE {at.format(**changed)} {place}")
        server.execute(f"ALTER TABLE kit.counts DELETE WHERE {at.format(**gone)} {place}")
        server.execute("INSERT INTO kit.counts (k, n) SETTINGS async_insert = 0 VALUES ('mine', 1)")
        told = scene.verify("clickhouse", 1)
        assert sorted(each["kind"] for each in told["differences"]) == ["changed", "extra", "missing"]
        assert all(each["where"].startswith("clickhouse 127.0.0.1") for each in told["differences"])
        assert f"column n: found {changed['n'] + 1}, expected {changed['n']}" in told["because"]


def change_field(client: redis.Redis, key: str) -> None:
    """Raise a count by one."""
    client.hincrby(key, "n", 1)


def change_text(client: redis.Redis, key: str) -> None:
    """Change one byte of a string."""
    text: Any = client.get(key)
    client.set(key, text.replace('"n":', '"n":1', 1))


TAMPERED: dict[str, Callable[[redis.Redis, list[str]], object]] = {
    "hash": lambda client, keys: (change_field(client, keys[0]), client.delete(keys[1])),
    "string": lambda client, keys: (change_text(client, keys[0]), client.delete(keys[1])),
    "sorted_set": lambda client, _: (client.zincrby("sorted_set:by_total", 1, "a"), client.zrem("sorted_set:by_total", "bb")),
    "stream": lambda client, _: client.xdel("stream:0", "1-0"),
}


# What is read of each kind: tests/sinks/stores/redis/test_reading.py.
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in ("hash", "stream") else pytest.mark.deep) for kind in TAMPERED])
def test_a_changed_and_a_deleted_key_are_found(scene: Scene, kind: str) -> None:
    """Of each kind what it keeps: all results, or the last of each key; what the store has refused may be absent."""
    scene.fill(kind, REDIS.format(port=scene.redis.port, kind=kind) + KINDS[kind])
    told = scene.verify(kind)
    assert told["table"]["rows"] > (3 if kind in ("hash", "stream") else 2)
    with redis.Redis(port=scene.redis.port, decode_responses=True) as client:
        TAMPERED[kind](client, sorted(key for key in client.scan_iter(f"{kind}:*") if not key.endswith("_progress")))
    told = scene.verify(kind, 1)
    kinds = ["missing"] if kind == "stream" else ["changed", "missing"]
    assert sorted(each["kind"] for each in told["differences"]) == kinds
    assert all(each["where"].startswith(f"redis 127.0.0.1:{scene.redis.port}") for each in told["differences"])
    if kind == "hash":
        assert any(line.startswith("column n: ") for line in told["because"])


def test_of_keys_that_expire_a_change_is_found_and_an_absence_is_not(scene: Scene) -> None:
    """Nothing tells a key that was deleted from one whose time was over; that is noted."""
    scene.fill("expiring", REDIS.format(port=scene.redis.port, kind="expiring") + KINDS["expiring"])
    with redis.Redis(port=scene.redis.port, decode_responses=True) as client:
        client.delete("expiring:a")
        told = scene.verify("expiring")
        assert any("expire" in note for note in told["notes"])
        change_field(client, "expiring:bb")
    told = scene.verify("expiring", 1)
    assert [each["kind"] for each in told["differences"]] == ["changed"]


def write_half(scene: Scene, name: str) -> None:
    """Write the first half of each partition into the store of a configuration, as a sink that is killed then has done."""
    settings = load(scene.space.folder / f"{name}.toml", {"kafka.bootstrap": scene.space.stack.bootstrap}, {})
    output, kafka = settings.output("counts"), settings.kafka.client_properties()
    topic = Admin(kafka).require(f"{scene.topic}.counts")
    stream, ((kind, table),) = Stream(topic.name, topic.topic_id, topic.partitions), output.stores.items()
    with contextlib.chdir(scene.space.folder):
        store = make_store(kind, table, StoreContext("counts", stream, columns_of(settings, "counts", None)))
        store.prepare()
        for partition, end in enumerate(Admin(kafka).ends([(topic.name, each) for each in range(topic.partitions)]).values()):
            feed = PartitionFeed(kafka, stream, partition)
            rows = Rows.concat(list(feed.read(end)))
            feed.close()
            rows = rows.slice(0, len(rows) // 2)
            batch = Batch(stream.id, partition, 0, len(rows), int(rows.offset[-1]) + 1, rows)
            try:
                store.write(batch)
            except RowsRefused as refused:
                store.write(batch.without({refusal.position for refusal in refused.refusals}))
        store.close()


def tamper_with_delta(scene: Scene) -> None:
    """Change an early row, which the attestation covers."""
    DeltaTable(str(scene.space.folder / "lake" / "counts")).update(
        updates={"n": "n + 1"}, predicate="k = 'a' AND w < '2024-03-01T00:01:00Z'"
    )


def tamper_with_redis(scene: Scene) -> None:
    """Give a key a value that no result has."""
    with redis.Redis(port=scene.redis.port) as client:
        client.hset("latest:a", "n", "12345")


@pytest.mark.parametrize(("name", "tamper"), [("delta", tamper_with_delta), ("latest", tamper_with_redis)])
def test_an_attestation_of_a_table_holds_until_an_attested_row_is_changed(scene: Scene, name: str, tamper: Callable[[Scene], None]) -> None:
    """Results that come later do not count, whether they are rows of their own or take the place of older ones; a change does."""
    scene.configure(name, DELTA if name == "delta" else REDIS.format(port=scene.redis.port, kind=name) + KINDS[name])
    key = Ed25519PrivateKey.generate()
    (scene.space.folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_half(scene, name)
    config = ("--config", f"{name}.toml")
    run_verify(scene.space, "counts", "--query", "counts=counts.sql", *config, "--sign", "key.pem", "--attestation", f"{name}.json")
    published = json.loads((scene.space.folder / f"{name}.json").read_text())["statement"]["published"]
    assert [each["kind"] for each in published] == ["topic", "table"]
    check = ("counts", "--check", f"{name}.json", *config)
    assert run_verify(scene.space, *check)["holds"]
    scene.space.start("sink", "counts", "--until-end", *config).finish()
    assert run_verify(scene.space, *check)["holds"], "what came later does not count"
    tamper(scene)
    (change, *_) = run_verify(scene.space, *check, exit_code=1)["changes"]
    assert change.startswith(published[1]["name"])
    assert "not as attested" in change
