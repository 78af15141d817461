"""
Deletes what results have made of a table, for ``tidegate reset --rows``: all of its rows, and the progress of the topic.

Law: both go in one transaction, and only if no other topic has its progress in the table: nothing distinguishes its rows from these.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from sinks.stores.base import StoreError, shared_rows_error
from sinks.stores.postgres.target import PROGRESS_TABLE, TableName, find_name, find_relation
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings

_LACKING = "SELECT current_user WHERE NOT has_table_privilege(%s::oid, 'DELETE') OR NOT has_table_privilege(%s::oid, 'SELECT')"


def count_clearable(connection: psycopg.Connection[Any], settings: PostgresSettings, output: str, topic: str) -> int | None:
    """Return how many rows :func:`clear` would delete, None if it has nothing to do; raises as it does."""
    name = find_name(connection, settings, output)
    progress = TableName(name.schema, PROGRESS_TABLE)
    tables = [table for table in (name, progress) if find_relation(connection, table) is not None]
    for table in tables:
        number = find_relation(connection, table)
        if (user := connection.execute(_LACKING, [number, number]).fetchone()) is not None:
            what, fix = f"the user {user[0]} may not delete from {table}", f"GRANT SELECT, DELETE ON {table} TO {user[0]}"
            raise StoreError(what, code="TG-STORE-REFUSED", where=str(name), fix=fix)
    if progress in tables:
        query = sql.SQL("SELECT DISTINCT topic FROM {} WHERE table_name = %s AND topic <> %s ORDER BY topic")
        others = [row[0] for row in connection.execute(query.format(progress.identifier), [name.table, topic]).fetchall()]
        if others:
            raise shared_rows_error(str(name), others)
    rows = _count(connection, name, sql.SQL("SELECT count(*) FROM {}"), []) if name in tables else 0
    of_topic = sql.SQL("SELECT count(*) FROM {} WHERE table_name = %s AND topic = %s")
    has_progress = progress in tables and _count(connection, progress, of_topic, [name.table, topic]) > 0
    return rows if rows or has_progress else None


def _count(connection: psycopg.Connection[Any], table: TableName, query: sql.SQL, values: list[str]) -> int:
    counted = connection.execute(query.format(table.identifier), values).fetchone()
    return int(counted[0]) if counted else 0


def clear(connection: psycopg.Connection[Any], settings: PostgresSettings, output: str, topic: str) -> None:
    """Delete the rows of an output's table and the progress of its topic, within the transaction of *connection*."""
    name = find_name(connection, settings, output)
    progress = TableName(name.schema, PROGRESS_TABLE)
    if find_relation(connection, progress) is not None:
        query = sql.SQL("DELETE FROM {} WHERE table_name = %s AND topic = %s").format(progress.identifier)
        connection.execute(query, [name.table, topic])
    # After the progress, whose lock keeps writers out.
    count_clearable(connection, settings, output, topic)
    if find_relation(connection, name) is not None:
        connection.execute(sql.SQL("DELETE FROM {}").format(name.identifier))
    pause_at("rows cleared")
