"""
Deletes what results have made of a table, for ``tidegate reset --rows``: all of its rows, then the table of their progress.

Law: nothing is deleted if another topic has its progress there: nothing distinguishes its rows from these. The progress goes last, so a
call that was cut off is seen to have something left to do.
"""

from __future__ import annotations

from sinks.stores.base import shared_rows_error
from sinks.stores.clickhouse.client import ClickHouseClient
from sinks.stores.clickhouse.target import literal, names_of, quote
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.clickhouse import ClickHouseSettings


def count_clearable(client: ClickHouseClient, settings: ClickHouseSettings, output: str, topic: str, where: str) -> int | None:
    """Return how many rows :func:`clear` would delete, None if there is neither table. Raises StoreError: results of others are there."""
    table, progress = _there(client, settings, output)
    if progress:
        others = client.ask(f"SELECT DISTINCT topic FROM {progress} WHERE topic != {literal(topic)}")
        if others:
            raise shared_rows_error(where, [str(name) for (name,) in others])
    rows = int(client.ask(f"SELECT count() FROM {table}")[0][0]) if table else 0
    return rows if rows or progress else None


def clear(client: ClickHouseClient, settings: ClickHouseSettings, output: str, topic: str, where: str) -> None:
    """Delete the rows and the progress; raises as :func:`count_clearable` does."""
    count_clearable(client, settings, output, topic, where)
    table, progress = _there(client, settings, output)
    if table:
        client.execute(f"TRUNCATE TABLE {table}")
    pause_at("rows cleared")
    if progress:
        client.execute(f"DROP TABLE {progress}")


def _there(client: ClickHouseClient, settings: ClickHouseSettings, output: str) -> tuple[str, str]:
    """Return the quoted names of the two tables, empty for one that is not there."""
    database, names = settings.database, names_of(settings, output)
    query = f"SELECT name FROM system.tables WHERE database = {literal(database)} AND name IN ({', '.join(map(literal, names))})"
    found = {str(name) for (name,) in client.ask(query)}
    table, progress = (f"{quote(database)}.{quote(name)}" if name in found else "" for name in names)
    return table, progress
