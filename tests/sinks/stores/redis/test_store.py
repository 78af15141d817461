"""Results as keys: what each kind writes, what it refuses, and what the server must be."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import ValidationError
from support.repository import ROOT
from support.stores.writers import batch
from support.valkey_server import Server

from ordering.errors import UnreachableError
from sinks.stores.base import ClearableStore, Progress, RowsRefused, Store, StoreContext, StoreError, Stream
from sinks.stores.registry import make_store
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings
from tidegate.platform.stack.embedded import free_port

pytestmark = pytest.mark.heavy
COLUMNS = (("car", "nvarchar(max)"), ("fixes", "bigint"), ("speed", "float"), ("more", "record"))
BY_CAR = {"kind": "hash", "primary_key": ["car"]}
RANKED = {"kind": "sorted_set", "primary_key": ["car"], "score": "speed"}


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """Any user's client; each test finds the server empty."""
    with redis.Redis(port=server.port, decode_responses=True) as made:
        made.flushall()
        yield made


def store_of(server: Server, columns: Any = COLUMNS, topic_id: str = "id-of-rides", **settings: Any) -> Store:
    """Return a store of the output ``rides``."""
    table = RedisStoreSettings.model_validate({"url": f"redis://127.0.0.1:{server.port}/0", "connect_timeout": "2s", **settings})
    return make_store("redis", table, StoreContext("rides", Stream("rides", topic_id, 1), columns))


def test_a_hash_is_the_last_result_of_its_key(server: Server, client: redis.Redis) -> None:
    """Within a batch and over batches; a column that has become NULL is gone, and records are as JSON."""
    store = store_of(server, **BY_CAR)
    store.write(batch(0, {"car": "a", "fixes": 1}, {"car": "b", "fixes": 2, "more": {"x": [1, 2]}}, {"car": "a", "fixes": 3, "speed": 1.5}))
    assert client.hgetall("rides:a") == {"car": "a", "fixes": "3", "speed": "1.5"}
    assert client.hgetall("rides:b") == {"car": "b", "fixes": "2", "more": '{"x": [1, 2]}'}
    store.write(batch(3, {"car": "a", "fixes": 4, "speed": None}))
    assert client.hgetall("rides:a") == {"car": "a", "fixes": "4"}
    assert sorted(client.keys()) == ["rides:a", "rides:b", "rides:tidegate_progress"]


def test_a_string_is_the_result_as_it_is_and_keys_of_two_columns_differ(server: Server, client: redis.Redis) -> None:
    """A colon within a value is no colon between values; ttl is that of the last result."""
    store = store_of(server, kind="string", primary_key=["car", "fixes"], key_prefix="last/", ttl="90s")
    store.write(batch(0, {"car": "a:1", "fixes": 2}, {"car": "50%", "fixes": 2}))
    assert sorted(client.keys("last/*")) == ["last/50%25:2", "last/a%3A1:2", "last/tidegate_progress"]
    assert client.get("last/a%3A1:2") == '{"car": "a:1", "fixes": 2}'
    assert 80 < client.ttl("last/a%3A1:2") <= 90
    assert client.ttl("last/tidegate_progress") == -1, "progress stays"


def test_a_stream_has_an_entry_for_each_result(server: Server, client: redis.Redis) -> None:
    """Its id is the position plus one; a repetition adds none."""
    store = store_of(server, kind="stream")
    first = batch(0, {"car": "a", "fixes": 1}, {"car": "a", "fixes": 1})
    for _ in range(3):
        assert store.write(first) == Progress("id-of-rides", 2, 2)
    assert client.xrange("rides:0") == [(f"{number}-0", {"car": "a", "fixes": "1"}) for number in (1, 2)]


def test_a_stream_without_its_progress_stops_the_job(server: Server, client: redis.Redis) -> None:
    """Entries that the progress does not know are neither doubled nor passed over."""
    store = store_of(server, kind="stream")
    store.write(batch(0, {"car": "a"}, {"car": "b"}))
    client.delete("rides:tidegate_progress")
    with pytest.raises(StoreError) as refused:
        store.write(batch(0, {"car": "a"}))
    assert refused.value.code == "TG-STORE-LOST"
    assert client.xlen("rides:0") == 2
    client.delete("rides:0")
    assert store.write(batch(0, {"car": "a"})).position == 1


def test_a_sorted_set_ranks_keys_by_their_last_score(server: Server, client: redis.Redis) -> None:
    """One set, one member for each key."""
    store = store_of(server, **RANKED)
    store.write(batch(0, {"car": "a", "speed": 3.5}, {"car": "b", "speed": 2}, {"car": "a", "speed": -1e300}))
    assert client.zrange("rides:by_speed", 0, -1, withscores=True) == [("a", -1e300), ("b", 2.0)]


def test_exactly_the_rows_that_do_not_fit_are_refused(server: Server, client: redis.Redis) -> None:
    """A key that holds something else refuses all its rows; NULL in a key, a wrong type; nothing of the batch stands."""
    client.set("rides:b", "mine")
    store = store_of(server, **BY_CAR)
    bad = batch(0, {"car": "a"}, {"car": "b"}, {"car": "c"}, {"car": "b", "fixes": 2})
    with pytest.raises(RowsRefused) as refused:
        store.write(bad)
    assert [refusal.position for refusal in refused.value.refusals] == [1, 3]
    assert refused.value.refusals[0].reason == "WRONGTYPE the key rides:b holds a string"
    assert client.keys() == ["rides:b"]
    assert store.write(bad.without({1, 3})) == Progress("id-of-rides", 4, 4)
    assert client.get("rides:b") == "mine"
    for value, reason in (
        ({"car": None}, "car, of primary_key, is NULL"),
        ({"car": "tidegate_progress"}, "its key rides:tidegate_progress is that of the progress"),
    ):
        with pytest.raises(RowsRefused) as refused:
            store.write(batch(4, {"car": "d"}, value))
        assert refused.value.refusals == [(5, reason)]
    with pytest.raises(RowsRefused) as refused:
        store_of(server, kind="stream").write(batch(0, {"car": None}))
    assert refused.value.refusals == [(0, "all columns are NULL, and an entry needs a field")]


def test_a_server_that_has_lost_everything_is_filled_again(server: Server, client: redis.Redis) -> None:
    """Rows and progress are lost together: the next batch is told where the store stands now."""
    store = store_of(server, **BY_CAR)
    store.write(batch(0, {"car": "a"}, {"car": "b"}))
    client.flushall()
    assert store.write(batch(2, {"car": "c"})) == Progress("id-of-rides", 0, 0)
    assert client.keys() == []


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"primary_key": ["cab"], "kind": "hash"}, "TG-STORE-COLUMN", "no column cab"),
        ({"primary_key": ["car"], "kind": "sorted_set", "score": "more"}, "TG-STORE-COLUMN", "score more is record"),
        ({**BY_CAR, "durability": "disk"}, "TG-STORE-REFUSED", "no append-only file"),
        ({**BY_CAR, "password": "sesame-17"}, "TG-STORE-REFUSED", "does not let us in"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_written(
    server: Server, client: redis.Redis, settings: dict[str, Any], code: str, words: str
) -> None:
    """Columns, durability, password: each by its code; no secret in the message."""
    with pytest.raises(StoreError) as refused:
        store_of(server, **settings).check()
    assert refused.value.code == code
    assert words in refused.value.what
    assert "sesame" not in str(refused.value)
    # Not those of [redis], which is another server.
    assert refused.value.fix.count("redis.") == refused.value.fix.count("outputs.NAME.redis.")
    assert client.keys() == []


def test_the_ways_out_of_a_server_without_a_file_are_ways_out(server: Server, client: redis.Redis) -> None:
    """Each that the error names: memory is enough, or the file is switched on."""
    with pytest.raises(StoreError, match="append-only") as refused:
        store_of(server, **BY_CAR, durability="disk").check()
    assert 'switch it on (appendonly yes), or set durability = "memory"' in refused.value.fix
    store_of(server, **BY_CAR, durability="memory").check()
    client.config_set("appendonly", "yes")
    try:
        store_of(server, **BY_CAR, durability="disk").check()
    finally:
        client.config_set("appendonly", "no")


def test_a_server_that_drops_keys_is_refused(server: Server, client: redis.Redis) -> None:
    """Keys without ttl may go with allkeys policies, the progress among them."""
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(StoreError, match="drops keys"):
            store_of(server, **BY_CAR).check()
        client.config_set("maxmemory-policy", "volatile-ttl")
        store_of(server, **BY_CAR).check()
    finally:
        client.config_set("maxmemory", "0")


def test_a_user_without_the_rights_is_told_and_the_rights_shown_are_enough(server: Server, client: redis.Redis) -> None:
    """A denied command is no reason to wait; with those of docs/operate/sinks-redis.md every kind works."""
    page = (ROOT / "docs" / "operate" / "sinks-redis.md").read_text(encoding="utf-8")
    (rules,) = re.findall(r"^ACL SETUSER rides on >SECRET (.*)$", page, re.MULTILINE)
    client.execute_command("ACL", "SETUSER", "rides", "reset", "on", ">sesame-17", "~rides:*", "+ping", "+select", "+info", "+client")
    login = {"username": "rides", "password": "sesame-17"}
    with pytest.raises(StoreError) as refused:
        store_of(server, **BY_CAR, **login).write(batch(0, {"car": "a"}))
    assert refused.value.code == "TG-STORE-REFUSED"
    client.execute_command("ACL", "SETUSER", "rides", "reset", "on", ">sesame-17", *rules.split())
    for kind in ({**BY_CAR, "ttl": "1h"}, {"kind": "stream"}, {"kind": "string", "primary_key": ["car"]}, RANKED):
        client.flushall()
        store = store_of(server, **kind, **login)
        assert store.write(batch(0, {"car": "a", "speed": 1})).position == 1
        assert store.progress([0])[0].position == 1


def test_in_a_cluster_all_keys_share_a_slot(tmp_path: Path) -> None:
    """Without a hash tag it is refused; with one it works on the node that has the slot."""
    # By default ten thousand above the other port: taken, or no port at all.
    node = Server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        with redis.Redis(port=node.port, decode_responses=True) as client:
            with pytest.raises(StoreError, match="cluster"):
                store_of(node, **BY_CAR).check()
            store = store_of(node, **BY_CAR, key_prefix="{rides}:")
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            for _ in range(100):
                try:
                    store.write(batch(0, {"car": "a"}, {"car": "b"}))
                    break
                except UnreachableError:
                    # A cluster counts as down for some seconds after its slots have been given out.
                    store.close()
                    time.sleep(0.1)
            assert client.hget("{rides}:b", "car") == "b"
            slots = {client.execute_command("CLUSTER", "KEYSLOT", key) for key in client.scan_iter()}
            assert (len(slots), client.dbsize()) == (1, 3)
    finally:
        node.kill()


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "hash"},
        {"kind": "stream", "primary_key": ["car"]},
        {"kind": "stream", "ttl": "1h"},
        {"kind": "sorted_set", "primary_key": ["car"]},
        {"kind": "hash", "primary_key": ["car"], "score": "speed"},
        {"kind": "hash", "primary_key": ["car"], "ca_file": "ca.pem"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    """A key where none is used, none where one is needed, and so on."""
    with pytest.raises(ValidationError):
        RedisStoreSettings.model_validate({"url": "redis://localhost:6379/0", **settings})


def test_the_rows_of_a_longer_prefix_are_not_cleared(server: Server, client: redis.Redis) -> None:
    """Its keys begin with the shorter one; nothing is deleted then, nor is a key of another type ever."""
    longer = store_of(server, **BY_CAR, key_prefix="rides:daily:")
    shorter = store_of(server, **BY_CAR, key_prefix="rides:")
    for store in (shorter, longer):
        store.write(batch(0, {"car": "a", "fixes": 1}))
    assert isinstance(shorter, ClearableStore)
    assert isinstance(longer, ClearableStore)
    with pytest.raises(StoreError) as refused:
        shorter.clear()
    assert (refused.value.code, client.exists("rides:a", "rides:daily:a")) == ("TG-RESET-ROWS", 2)
    longer.clear()
    client.set("rides:foreign", "a text")
    assert shorter.count_clearable() == 1
    shorter.clear()
    assert client.keys("*") == ["rides:foreign"]
    for store in (shorter, longer):
        store.close()
