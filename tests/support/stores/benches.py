"""The stores that every test of the contract runs on; a new store adds a line to ``BENCHES``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from support.postgres_server import PostgresServer
from support.stores.kit import COLUMNS, KEY, Bench

from sinks.stores.base import Store, StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.settings.tables.stores.postgres import PostgresSettings


class PostgresBench:
    """PostgreSQL in one of its modes."""

    def __init__(self, folder: Path, mode: str, server: PostgresServer | None = None) -> None:
        self.server = server or PostgresServer(folder)
        self._keyed = {} if mode == "append" else {"primary_key": KEY}
        self._mode = mode

    def settings(self, target: str, port: int | None = None, **given: Any) -> PostgresSettings:
        url = f"postgresql://postgres@127.0.0.1:{port or self.server.port}/postgres"
        return PostgresSettings.model_validate({"url": url, "table": f"kit.{target}", "mode": self._mode, **self._keyed, **given})

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("postgres", self.settings(target, port), StoreContext("results", stream, COLUMNS))

    def table(self, target: str) -> str:
        keyed = "".join(f"{name} = {list(columns)}\n" for name, columns in self._keyed.items())
        return f'[outputs.results.postgres]\nurl = "{self.server.url()}"\ntable = "kit.{target}"\nmode = "{self._mode}"\n{keyed}'

    def read(self, target: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.server.url(), row_factory=dict_row) as connection:
            return connection.execute(f"SELECT * FROM kit.{target}".encode()).fetchall()

    @property
    def port(self) -> int | None:
        return self.server.port

    def close(self) -> None:
        self.server.stop()


# By name: makes the bench with its server in a folder.
BENCHES: Mapping[str, Callable[[Path], Bench]] = {
    "postgres append": lambda folder: PostgresBench(folder, "append"),
    "postgres insert": lambda folder: PostgresBench(folder, "insert"),
    "postgres upsert": lambda folder: PostgresBench(folder, "upsert"),
}
