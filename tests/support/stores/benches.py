"""The stores that every test of the contract runs on; a new store adds a line to ``BENCHES``."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import redis
from psycopg.rows import dict_row
from support import delta_reader, iceberg_reader
from support.iceberg_rest_server import IcebergRestServer
from support.installing import installed_here
from support.object_server import CREDENTIALS, REGION, ObjectServer
from support.postgres_server import PostgresServer
from support.repository import ROOT
from support.stack.servers import open_postgres
from support.stores.kit import COLUMNS, KEY, Bench, value_of
from support.valkey_server import Server

from sinks.stores.base import Store, StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.platform.settings.tables.stores.clickhouse import ClickHouseSettings
from tidegate.platform.settings.tables.stores.delta import DeltaSettings
from tidegate.platform.settings.tables.stores.http import HttpSettings
from tidegate.platform.settings.tables.stores.iceberg import IcebergSettings
from tidegate.platform.settings.tables.stores.installed import find_store_table
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings
from tidegate.platform.settings.tables.stores.redis import RedisStoreSettings
from tidegate.platform.stack.embedded import free_port


class PostgresBench:
    """PostgreSQL in one of its modes; the first in a container, if there is an engine."""

    refuses = "more"

    def __init__(self, mode: str) -> None:
        self.server = open_postgres() if mode == "append" else PostgresServer()
        self._keyed = {} if mode == "append" else {"primary_key": KEY}
        self._mode = mode

    def settings(self, target: str, port: int | None = None, **given: Any) -> PostgresSettings:
        url = f"postgresql://postgres@127.0.0.1:{port or self.server.port}/postgres"
        return PostgresSettings.model_validate({"url": url, "table": f"kit.{target}", "mode": self._mode, **self._keyed, **given})

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("postgres", self.settings(target, port), StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        keyed = "".join(f"{name} = {list(columns)}\n" for name, columns in self._keyed.items())
        url = self.server.url().replace(str(self.server.port), str(port or self.server.port))
        return f'[outputs.results.postgres]\nurl = "{url}"\ntable = "kit.{target}"\nmode = "{self._mode}"\n{keyed}'

    def read(self, target: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.server.url(), row_factory=dict_row) as connection:
            if connection.execute("SELECT to_regclass(%s) AS made", [f"kit.{target}"]).fetchone() == {"made": None}:
                return []
            return connection.execute(f"SELECT * FROM kit.{target}".encode()).fetchall()

    @property
    def port(self) -> int | None:
        return self.server.port

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def close(self) -> None:
        self.server.stop()


class DeltaBench:
    """Delta Lake tables in a folder, one folder of files for each partition; there is no server."""

    port = None
    refuses = "types"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self, target: str) -> DeltaSettings:
        return DeltaSettings(path=str(self._folder / target), partition_by=("partition",))

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("delta", self.settings(target), StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        return f'[outputs.results.delta]\npath = "{self._folder / target}"\npartition_by = ["partition"]\n'

    def read(self, target: str) -> list[dict[str, Any]]:
        return delta_reader.read_rows(self._folder / target)

    def kill(self) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def close(self) -> None:
        """There is no server."""


class DeltaOnS3Bench(DeltaBench):
    """The same on an object store. Its server keeps all in memory, so it is not killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = ObjectServer(folder / "server.log")
        self._bucket = self._server.new_bucket()

    def _options(self) -> dict[str, str]:
        endpoint = f"http://127.0.0.1:{self._server.port}"
        keys = {name: CREDENTIALS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        return {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION, **keys}

    def settings(self, target: str) -> DeltaSettings:
        place = {"path": f"s3://{self._bucket}/{target}", "storage_options": self._options()}
        return DeltaSettings.model_validate({**place, "partition_by": ("partition",)})

    def table(self, target: str, port: int | None = None) -> str:
        given = self._options()
        for name in given.keys() & CREDENTIALS.keys():
            # A secret may not stand in a configuration itself.
            (self._folder / name).write_text(given[name])
            given[name] = f"file:{self._folder / name}"
        options = ", ".join(f'{name} = "{value}"' for name, value in given.items())
        path = f's3://{self._bucket}/{target}"\npartition_by = ["partition"]'
        return f'[outputs.results.delta]\npath = "{path}\nstorage_options = {{ {options} }}\n'

    def read(self, target: str) -> list[dict[str, Any]]:
        # Objects are copied once: none of those that count is ever changed.
        copy = self._folder / target
        for name in self._server.names(f"{self._bucket}/{target}"):
            if not (copy / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                (copy / name).write_bytes(self._server.get(f"{self._bucket}/{target}/{name}"))
        return delta_reader.read_rows(copy)

    def close(self) -> None:
        self._server.stop()


class IcebergBench:
    """Iceberg tables in a folder; their catalog is a REST server, in a PostgreSQL, or, without a server, in a file of SQLite."""

    refuses = "types"

    def __init__(self, folder: Path, server: PostgresServer | IcebergRestServer | None = None) -> None:
        self._folder, self._server = folder, server

    def catalog(self, port: int | None = None) -> dict[str, str]:
        kind, uri = "sql", f"sqlite:///{self._folder}/catalog.db"
        if isinstance(self._server, IcebergRestServer):
            kind, uri = "rest", self._server.url(port)
        elif self._server is not None:
            uri = f"postgresql+psycopg://postgres@127.0.0.1:{port or self._server.port}/postgres?connect_timeout=2"
        return {"type": kind, "uri": uri, "warehouse": f"file://{self._folder}"}

    def settings(self, target: str, port: int | None = None) -> IcebergSettings:
        return IcebergSettings.model_validate({"table": f"kit.{target}", "catalog": self.catalog(port)})

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("iceberg", self.settings(target, port), StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        # As one line: the settings of a test come after it.
        catalog = ", ".join(f"{name} = {json.dumps(value)}" for name, value in self.catalog(port).items())
        return f'[outputs.results.iceberg]\ntable = "kit.{target}"\ncatalog = {{ {catalog} }}\n'

    def read(self, target: str) -> list[dict[str, Any]]:
        found = self._ask(f"SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'kit' AND table_name = '{target}'")
        return [row for (location,) in found for row in iceberg_reader.read_rows(location)]

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        try:
            if isinstance(self._server, PostgresServer):
                with psycopg.connect(self._server.url()) as asked:
                    return asked.execute(query.encode()).fetchall()
            with contextlib.closing(sqlite3.connect(self._folder / "catalog.db", timeout=30)) as connection:
                return connection.execute(query).fetchall()
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return []

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.port

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()

    def start(self) -> None:
        if self._server is not None:
            self._server.start()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()


class RedisBench:
    """Valkey with an append-only file, in one of the kinds of key."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.server = Server(folder, "--appendonly", "yes", "--appendfsync", "always")
        self._kind = kind
        # A result without a score has no place in a sorted set.
        self.refuses = {"stream": "types", "sorted_set": ""}.get(kind, "more")
        self._given: dict[str, Any] = {"kind": kind, "durability": "disk"}
        if kind != "stream":
            self._given["primary_key"] = list(KEY)
        if kind == "sorted_set":
            self._given["score"] = "speed"

    def settings(self, target: str, port: int | None = None, **given: Any) -> RedisStoreSettings:
        url = f"redis://127.0.0.1:{port or self.server.port}/0"
        return RedisStoreSettings.model_validate({"url": url, "key_prefix": f"{target}:", **self._given, **given})

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("redis", self.settings(target, port), StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        given = {"url": f"redis://127.0.0.1:{port or self.server.port}/0", "key_prefix": f"{target}:", **self._given}
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items())
        return f"[outputs.results.redis]\n{lines}"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.server.port, decode_responses=True)

    def read(self, target: str) -> list[dict[str, Any]]:
        with self.client() as client:
            keys = [key for key in client.scan_iter(f"{target}:*", 1_000) if not key.endswith(":tidegate_progress")]
            pipe = client.pipeline()
            for key in keys:
                match self._kind:
                    case "hash":
                        pipe.hgetall(key)
                    case "string":
                        pipe.get(key)
                    case "stream":
                        pipe.xrange(key)
                    case _:
                        pipe.zrange(key, 0, -1, withscores=True)
            found: list[Any] = pipe.execute()
        match self._kind:
            case "hash":
                return [{"name": None, **fields} for fields in found]
            case "string":
                return [json.loads(text) for text in found]
            case "stream":
                return [{"name": None, **fields} for entries in found for _, fields in entries]
            case _:
                return [_ranked(member, score) for members in found for member, score in members]

    @property
    def port(self) -> int | None:
        return self.server.port

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def close(self) -> None:
        self.server.kill()


def _ranked(member: str, score: float) -> dict[str, Any]:
    """Return a member of a sorted set as a row: it has no room for a name, its score is compared here instead."""
    partition, number = map(int, member.split(":"))
    told = json.loads(value_of(partition, number))
    assert score == told["speed"], (member, score)
    return {"partition": partition, "number": number, "name": told["name"]}


def start_listening(program: list[str], port: int) -> subprocess.Popen[bytes]:
    """Start a program in Python; return it once it answers at a loopback port."""
    process = subprocess.Popen([sys.executable, *program])
    until_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            assert process.poll() is None, f"{program[0]} has ended"
            assert time.monotonic() < until_s, f"{program[0]} has not started"
            time.sleep(0.05)


class HttpBench:
    """A receiver of webhooks in a process of its own; a Redis of ours keeps the progress where no stack does."""

    # The key of the examples in the text of Standard Webhooks.
    SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    refuses = ""

    def __init__(self, folder: Path) -> None:
        self._kept, self._secret = folder / "kept", folder / "secret"
        self._kept.mkdir()
        self._secret.write_text(self.SECRET)
        (folder / "redis").mkdir()
        self.redis = Server(folder / "redis", "--appendonly", "yes", "--appendfsync", "always")
        self._port = free_port()
        self.start()

    def settings(self, target: str, port: int | None = None, **given: Any) -> HttpSettings:
        url = f"http://127.0.0.1:{port or self._port}/{target}"
        return HttpSettings.model_validate({"url": url, "secret": self.SECRET, "request_timeout": "2s", **given})

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        context = StoreContext("results", stream, COLUMNS, self.redis.settings())
        return make_store("http", self.settings(target, port), context)

    def table(self, target: str, port: int | None = None) -> str:
        url = f"http://127.0.0.1:{port or self._port}/{target}"
        return f'[outputs.results.http]\nurl = "{url}"\nsecret = "file:{self._secret}"\nrequest_timeout = "2s"\n'

    def read(self, target: str) -> list[dict[str, Any]]:
        path = self._kept / target
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [result for line in lines if line.endswith(b"\n") for result in json.loads(line)["results"]]

    @property
    def port(self) -> int | None:
        return self._port

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        program = Path(__file__).with_name("webhook_receiver.py")
        self._process = start_listening([str(program), str(self._port), str(self._kept), self.SECRET], self._port)

    def close(self) -> None:
        self.kill()
        self.redis.kill()


class ClickHouseBench:
    """ClickHouse's engine behind a door of ours, in a process of its own."""

    USER, PASSWORD = "writer", "of tests only"
    refuses = "types"

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._secret = folder / "password"
        self._secret.write_text(self.PASSWORD)
        self.start()

    def settings(self, target: str, port: int | None = None, **given: Any) -> ClickHouseSettings:
        return ClickHouseSettings.model_validate({**self.given(target, port), **given})

    def url(self, port: int | None = None) -> str:
        return f"http://127.0.0.1:{port or self._port}/"

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("clickhouse", self.settings(target, port), StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        given = {**self.given(target, port), "password": f"file:{self._secret}"}
        return "[outputs.results.clickhouse]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items())

    def given(self, target: str, port: int | None = None) -> dict[str, str]:
        """Return the settings by their names, the password as it is."""
        who = {"user": self.USER, "password": self.PASSWORD}
        return {"url": self.url(port), **who, "database": "kit", "table": target, "request_timeout": "10s"}

    def execute(self, statement: str) -> bytes:
        """Run a statement as its user would; return what it gives."""
        headers = {"X-ClickHouse-User": self.USER, "X-ClickHouse-Key": self.PASSWORD}
        answer = httpx2.post(self.url(), params={"query": statement}, headers=headers, timeout=30)
        if b"UNKNOWN_TABLE" in answer.content or b"UNKNOWN_DATABASE" in answer.content:
            return b""
        assert answer.status_code == 200, answer.text
        return answer.content

    def read(self, target: str) -> list[dict[str, Any]]:
        query = f"SELECT * FROM kit.{target} SETTINGS output_format_json_quote_64bit_integers = 0 FORMAT JSONEachRow"
        return [json.loads(line) for line in self.execute(query).splitlines()]

    @property
    def port(self) -> int | None:
        return self._port

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        program = Path(__file__).with_name("clickhouse_server.py")
        self.process = start_listening([str(program), str(self._port), str(self._folder), self.USER, self.PASSWORD], self._port)

    def close(self) -> None:
        self.kill()


class SqliteBench:
    """The store that a package brings: an SQLite file, without a server. The package is installed as long as the bench is open."""

    port = None
    refuses = "types"

    def __init__(self, folder: Path) -> None:
        self._path, self._open = folder / "results.db", contextlib.ExitStack()
        self._open.enter_context(installed_here(ROOT / "examples" / "sqlite", folder / "site"))

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        table = find_store_table("sqlite")
        assert table is not None, "the package is found"
        settings = table.model_validate({"path": str(self._path), "table": target})
        return make_store("sqlite", settings, StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        return f'[outputs.results.sqlite]\npath = "{self._path}"\ntable = "{target}"\n'

    def read(self, target: str) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [target]).fetchall():
                return []
            return [dict(row) for row in connection.execute(f"SELECT * FROM {target}")]

    def kill(self) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def close(self) -> None:
        self._open.close()


# By name: makes the bench with its server in a folder.
BENCHES: Mapping[str, Callable[[Path], Bench]] = {
    "clickhouse": ClickHouseBench,
    "delta": DeltaBench,
    "delta s3": DeltaOnS3Bench,
    "http": HttpBench,
    "iceberg sqlite": IcebergBench,
    "iceberg rest": lambda folder: IcebergBench(folder, IcebergRestServer(folder)),
    "iceberg postgres": lambda folder: IcebergBench(folder, PostgresServer()),
    "postgres append": lambda _: PostgresBench("append"),
    "postgres insert": lambda _: PostgresBench("insert"),
    "postgres upsert": lambda _: PostgresBench("upsert"),
    "redis hash": lambda folder: RedisBench(folder, "hash"),
    "redis string": lambda folder: RedisBench(folder, "string"),
    "redis stream": lambda folder: RedisBench(folder, "stream"),
    "redis sorted_set": lambda folder: RedisBench(folder, "sorted_set"),
    "sqlite": SqliteBench,
}


def _chosen(chosen: Set[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.deep) for name in BENCHES]


# For the contract of stores: each kind of commit, each of the others differs from one of these in a statement or a server alone.
EVERY_BENCH = _chosen(BENCHES.keys() - {"delta s3", "iceberg postgres", "iceberg sqlite", "postgres insert", "redis string"})
# For jobs, which take more time: rows and progress in one transaction, in one commit of files, and rows that a name makes idempotent,
# with the progress elsewhere. What only appends shows a second write; Redis commits as PostgreSQL does, in a script. The copying itself
# knows nothing of the store.
JOB_BENCHES = _chosen({"delta", "http", "postgres append"})
# For what the job does itself, beside commits that a kill cuts in two: which store it fills does not matter.
COPY_BENCHES = _chosen({"postgres append"})
# For resets: stores that delete what they were given, one with rows in files and one with rows under keys; what each of them does itself
# is in the contract. Without a reader of its own, a webhook has nothing to delete, nor has the example.
CLEARABLE_BENCHES = [param for param in _chosen({"delta", "redis hash"}) if param.values[0] not in ("http", "sqlite")]
