"""The stores that every test of the contract runs on; a new store adds a line to ``BENCHES``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from support.delta_reader import read_rows
from support.postgres_server import PostgresServer
from support.stores.kit import COLUMNS, KEY, Bench

from sinks.stores.base import Store, StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.settings.tables.stores.delta import DeltaSettings
from tidegate.settings.tables.stores.postgres import PostgresSettings


class PostgresBench:
    """PostgreSQL in one of its modes."""

    def __init__(self, mode: str) -> None:
        self.server = PostgresServer()
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

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self, target: str) -> DeltaSettings:
        return DeltaSettings(path=str(self._folder / target), partition_by=("partition",))

    def make(self, target: str, stream: Stream, port: int | None = None) -> Store:
        return make_store("delta", self.settings(target), StoreContext("results", stream, COLUMNS))

    def table(self, target: str, port: int | None = None) -> str:
        return f'[outputs.results.delta]\npath = "{self._folder / target}"\npartition_by = ["partition"]\n'

    def read(self, target: str) -> list[dict[str, Any]]:
        return read_rows(self._folder / target)

    def kill(self) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def close(self) -> None:
        """There is no server."""


# By name: makes the bench with its server in a folder.
BENCHES: Mapping[str, Callable[[Path], Bench]] = {
    "delta": DeltaBench,
    "postgres append": lambda _: PostgresBench("append"),
    "postgres insert": lambda _: PostgresBench("insert"),
    "postgres upsert": lambda _: PostgresBench("upsert"),
}
