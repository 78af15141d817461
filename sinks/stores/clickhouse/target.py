"""
The table for the results and the table of their progress: names and columns, and whether they fit the query.

Law: an existing table is only changed if ``schema_evolution`` says so, and then only by columns added at its end. The type of a column
holds each value of its kind exactly, or refuses it: no value is rounded.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sinks.stores.base import StoreError
from sinks.stores.clickhouse.client import ClickHouseClient
from tidegate.platform.settings.tables.stores.clickhouse import ClickHouseSettings
from tidegate.records.result_columns import Column

# The columns that say which result a row is.
TOPIC_ID, PARTITION, SEQ = "_topic_id", "_partition", "_seq"
_PLACE = {TOPIC_ID: "LowCardinality(String)", PARTITION: "Int32", SEQ: "Int64"}
# How many inserts the server must remember: so many others may come while one is under way.
_WINDOW = 10_000
_PROGRESS_COMMENT = "tidegate "
# The types of the columns that a sink makes and of the values that it sends; any other kind (record, array, any) is sent as JSON text.
MADE_AS = {"bit": "Bool", "bigint": "Int64", "float": "Float64", "datetime": "DateTime64(6, 'UTC')"}
# The types that take values of a kind, without Nullable and LowCardinality.
_TAKEN_BY = {
    "bit": r"Bool|U?Int8",
    "bigint": r"U?Int(8|16|32|64|128|256)",
    "float": r"Float64",
    "datetime": r"DateTime64\([6-9].*\)",
}
_TEXT = r"String|Enum(8|16)\(.*\)"


class ClickHouseColumn(NamedTuple):
    """A column of the query: its kind there, and its type in the table."""

    name: str
    kind: str
    type: str

    @property
    def sent_as(self) -> str:
        """The type of the values that are sent."""
        return _made_type(self.kind)


@dataclass(frozen=True, slots=True)
class ClickHouseTarget:
    """
    The tables by their quoted names, and the query's columns with the types of the table. *epoch* is a random text, drawn when the table of
    progress is made and part of every token: after that table is dropped, all results are copied again with tokens that the server has
    not seen.
    """

    table: str
    progress: str
    columns: tuple[ClickHouseColumn, ...]
    epoch: str
    is_there: bool


def quote(name: str) -> str:
    """Return a name quoted for a statement."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """Return a text as a literal of a statement."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def names_of(settings: ClickHouseSettings, output: str) -> tuple[str, str]:
    """Return the names of the table of an output and of the table of its progress."""
    name = settings.table or output
    return name, f"{name}_tidegate_progress"


def find_target(
    client: ClickHouseClient, settings: ClickHouseSettings, output: str, columns: Sequence[Column], *, may_change: bool
) -> ClickHouseTarget:
    """
    Return the tables of an output, made or extended if *may_change*. Raises StoreError: the table does not fit the query, or it is gone
    though results have been written.
    """
    return _Finder(client, settings, names_of(settings, output), columns).find(may_change=may_change)


class _Finder:
    def __init__(self, client: ClickHouseClient, settings: ClickHouseSettings, names: tuple[str, str], columns: Sequence[Column]) -> None:
        self._client, self._settings, self._columns = client, settings, columns
        self._name, self._progress_name = names
        self._table = f"{quote(settings.database)}.{quote(self._name)}"
        self._progress = f"{quote(settings.database)}.{quote(self._progress_name)}"

    def find(self, *, may_change: bool) -> ClickHouseTarget:
        self._check_names()
        tables = self._read_tables()
        if may_change and self._progress_name not in tables:
            self._make_progress()
            tables = self._read_tables()
        epoch = tables.get(self._progress_name, ("", "", ""))[1].removeprefix(_PROGRESS_COMMENT)
        if self._name not in tables:
            if self._progress_name in tables:
                self._check_not_lost()
            if not may_change:
                return ClickHouseTarget(self._table, self._progress, self._as_made(), epoch, is_there=False)
            self._make_table()
            tables = self._read_tables()
        self._check_engine(*tables[self._name])
        return ClickHouseTarget(self._table, self._progress, self._fit(may_change=may_change), epoch, is_there=True)

    def _read_tables(self) -> dict[str, tuple[str, str, str]]:
        names = f"{literal(self._name)}, {literal(self._progress_name)}"
        query = f"SELECT name, engine, comment, engine_full FROM system.tables WHERE database = {literal(self._settings.database)}"
        found = self._client.ask(f"{query} AND name IN ({names})")
        return {name: (engine, comment, full) for name, engine, comment, full in found}

    def _make_progress(self) -> None:
        database = self._settings.database
        # Looked up first: CREATE ... IF NOT EXISTS needs the right to create even if the database exists.
        if not self._client.ask(f"SELECT 1 FROM system.databases WHERE name = {literal(database)}"):
            self._client.execute(f"CREATE DATABASE IF NOT EXISTS {quote(database)}")
        self._client.execute(
            f"CREATE TABLE IF NOT EXISTS {self._progress} (topic String, `partition` Int32, topic_id String, position Int64, "
            "log_offset Int64, batch_end Int64, version UInt64, updated_at DateTime64(3, 'UTC') DEFAULT now64(3)) "
            "ENGINE = ReplacingMergeTree(version) ORDER BY (topic, `partition`) "
            f"SETTINGS {_merge_tree_settings()} COMMENT {literal(_PROGRESS_COMMENT + secrets.token_hex(8))}"
        )

    def _make_table(self) -> None:
        parts = [f"{quote(column.name)} {column.type}" for column in self._as_made()]
        parts += [f"{quote(name)} {kind}" for name, kind in _PLACE.items()]
        order, more = ", ".join(map(quote, _PLACE)), ""
        if self._settings.order_by:
            parts.append(f"INDEX tidegate_seq {quote(SEQ)} TYPE minmax GRANULARITY 1")
            order, more = ", ".join(map(quote, self._settings.order_by)), ", allow_nullable_key = 1"
        self._client.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(parts)}) ENGINE = MergeTree ORDER BY ({order}) "
            f"SETTINGS {_merge_tree_settings()}{more}"
        )

    def _as_made(self) -> tuple[ClickHouseColumn, ...]:
        return tuple(ClickHouseColumn(name, kind, _made_type(kind)) for name, kind in self._columns)

    def _check_not_lost(self) -> None:
        ((written,),) = self._client.ask(f"SELECT max(position) FROM {self._progress}")
        if int(written):
            fix = f"bring it back; or, to copy all results again: DROP TABLE {self._progress}"
            raise StoreError(
                "the table is gone, though results have been written into it", code="TG-STORE-LOST", where=self._where, fix=fix
            )

    def _check_names(self) -> None:
        names = [name for name, _ in self._columns]
        for name in names:
            if name in _PLACE:
                raise self._error(f"has a column {name} that says which result a row is, and so has the query", "give it another name")
        for name in self._settings.order_by:
            if name not in names:
                raise self._error(f"has no column {name}, which order_by names", "name columns of the query")

    def _check_engine(self, engine: str, _: str, full: str) -> None:
        if engine != "MergeTree":
            raise self._error(f"is of the engine {engine}: what stands there once is not known", "write into a table ENGINE = MergeTree")
        own = re.search(r"\bnon_replicated_deduplication_window = (\d+)", full)
        query = "SELECT value FROM system.merge_tree_settings WHERE name = 'non_replicated_deduplication_window'"
        window = int(own[1] if own else self._client.ask(query)[0][0])
        if window < _WINDOW:
            fix = f"ALTER TABLE {self._table} MODIFY SETTING non_replicated_deduplication_window = {_WINDOW}"
            raise self._error(f"remembers {window} inserts, and must remember {_WINDOW:,}: else one may stand twice", fix)

    def _fit(self, *, may_change: bool) -> tuple[ClickHouseColumn, ...]:
        existing = self._read_columns()
        wanted = {**{column.name: column.type for column in self._as_made()}, **_PLACE}
        missing = [name for name in wanted if name not in existing]
        if missing:
            added = ", ".join(f"ADD COLUMN {quote(name)} {wanted[name]}" for name in missing)
            if self._settings.schema_evolution == "none":
                fix = f'set schema_evolution = "add", or: ALTER TABLE {self._table} {added}'
                raise self._error(f"has no column for {', '.join(missing)}", fix)
            if may_change:
                # Another job may add the same columns at the same time.
                self._client.execute(f"ALTER TABLE {self._table} {added.replace('ADD COLUMN', 'ADD COLUMN IF NOT EXISTS')}")
                existing = self._read_columns()
        for name, kind in [*self._columns, *((name, "") for name in _PLACE)]:
            if name in existing:
                self._check_column(name, kind, *existing[name])
        return tuple(ClickHouseColumn(name, kind, existing[name][0] if name in existing else wanted[name]) for name, kind in self._columns)

    def _read_columns(self) -> dict[str, tuple[str, str]]:
        place = f"database = {literal(self._settings.database)} AND table = {literal(self._name)}"
        found = self._client.ask(f"SELECT name, type, default_kind FROM system.columns WHERE {place}")
        return {name: (kind, default) for name, kind, default in found}

    def _check_column(self, name: str, kind: str, existing: str, default: str) -> None:
        if default in ("MATERIALIZED", "ALIAS"):
            raise self._error(f"computes its column {name}, which is to be written", "give one of them another name")
        suitable, made, reason = _TAKEN_BY.get(kind, _TEXT), _made_type(kind), f"the query's is {kind}"
        if name in _PLACE:
            suitable, made, reason = plain_type(_PLACE[name]), _PLACE[name], "it says which result a row is"
        if not re.fullmatch(suitable, plain_type(existing)):
            # The place is part of the table's order, whose types cannot be changed.
            statement = f"ALTER TABLE {self._table} MODIFY COLUMN {quote(name)} {made}; or CAST in the query"
            fix = f"make a table whose column is {made}" if name in _PLACE else statement
            raise self._error(f"has column {name} of type {existing}, and {reason}", fix)

    @property
    def _where(self) -> str:
        return f"{self._settings.database}.{self._name}"

    def _error(self, what: str, fix: str) -> StoreError:
        return StoreError(f"table {self._where} {what}", code="TG-STORE-COLUMN", where=self._where, fix=fix)


def plain_type(kind: str) -> str:
    """Return a type without ``Nullable`` and ``LowCardinality`` around it."""
    while found := re.fullmatch(r"(?:Nullable|LowCardinality)\((.*)\)", kind):
        kind = found[1]
    return kind


def _made_type(kind: str) -> str:
    return f"Nullable({MADE_AS.get(kind, 'String')})"


def _merge_tree_settings() -> str:
    # With fsync, acknowledged rows are on the server's disk.
    return f"non_replicated_deduplication_window = {_WINDOW}, fsync_after_insert = 1, fsync_part_directory = 1"
