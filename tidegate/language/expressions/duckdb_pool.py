"""
DuckDB as a calculator: one in-memory database per process and thread, with one DuckDB thread and no access to files or the network.

Results must be the same bytes on every machine, and DuckDB keeps the order of rows only without parallel scans. Only aggregates that do not
depend on row order are computed here (counts, exact integer sums, minima, maxima).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:  # whoever computes imports it: most commands only look at expressions
    import duckdb

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    # Of the memory of the machine or container, since two tasks compute at a time. Rows that need more are computed in smaller parts.
    "memory_limit": "40%",
    "preserve_insertion_order": True,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
# Datetimes are int64 microseconds. `iso8601` writes as few fraction digits as ordering.ticks.format_tick does; `spans` counts whole
# spans since 1970, rounded down; `datetime_of` is NULL outside the years 1 to 9999. `compare_numbers` is below, at or above 0 as a bigint
# is below, at or above a float: only among numbers that are equal as floats the integers decide.
_MACROS = """
CREATE MACRO iso8601(us) AS CASE
    WHEN us % 1000000 = 0 THEN strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%SZ')
    WHEN us % 1000 = 0 THEN strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%gZ')
    ELSE strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%fZ') END;
CREATE MACRO spans(us, width) AS (us - ((us % width) + width) % width) // width;
CREATE MACRO datetime_of(us) AS CASE WHEN us BETWEEN -62135596800000000 AND 253402300799999999 THEN CAST(us AS BIGINT) END;
CREATE MACRO compare_numbers(i, f) AS CASE WHEN CAST(i AS DOUBLE) < f THEN -1 WHEN CAST(i AS DOUBLE) > f THEN 1
    ELSE CAST(i AS HUGEINT) - TRY_CAST(f AS HUGEINT) END;
CREATE MACRO try_cast_datetime(us) AS datetime_of(us);
CREATE MACRO cast_datetime(us) AS CASE WHEN us IS NOT NULL AND datetime_of(us) IS NULL THEN CAST('' AS BIGINT) ELSE us END;
CREATE MACRO try_cast_json(x, type) AS CASE WHEN json_valid(x) THEN CASE WHEN json_type(x) = type THEN
    CAST(json_extract(x, '$') AS VARCHAR) END END;
CREATE MACRO cast_json(x, type) AS CASE WHEN x IS NULL THEN NULL
    WHEN coalesce(CASE WHEN json_valid(x) THEN json_type(x) = type END, false) THEN CAST(json_extract(x, '$') AS VARCHAR)
    ELSE CAST(CAST('' AS BIGINT) AS VARCHAR) END;
CREATE MACRO record_properties(x) AS CASE WHEN x IS NOT NULL THEN CAST(to_json(list_transform(
    list_zip(json_keys(x), json_extract(x, '$.*')), lambda m: {'PropertyName': m[1], 'PropertyValue': m[2]})) AS VARCHAR) END;
"""
# How often each macro repeats an argument at most; nested macros multiply these numbers.
MACRO_USES = {
    "iso8601": 5,
    "spans": 3,
    "datetime_of": 2,
    "compare_numbers": 3,
    "try_cast_datetime": 2,
    "cast_datetime": 4,
    "try_cast_json": 3,
    "cast_json": 4,
    "record_properties": 3,
}

_local = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """Return this thread's connection; a forked process opens its own."""
    if getattr(_local, "pid", None) != os.getpid():
        import duckdb

        _local.connection = duckdb.connect(":memory:", config=_SETTINGS)
        # All values are in memory anyway, so nothing is spilled to disk. Without file systems extensions cannot be loaded either, such as
        # those that reach the network. (`enable_external_access` would also keep statements from reading the variables of `run`.)
        _local.connection.execute("SET temp_directory = ''; SET disabled_filesystems = 'LocalFileSystem'; SET TimeZone = 'UTC'")
        _local.connection.execute(_MACROS)
        _local.pid = os.getpid()
    con: duckdb.DuckDBPyConnection = _local.connection
    return con


def run(sql: str, input: pa.Table | None = None) -> pa.Table:
    """Run one SELECT over the table *input*; return its rows. Raises duckdb.Error: the statement failed on some row."""
    try:
        # DuckDB finds the table by the name of the variable; to register it by name takes half as long as a small statement.
        return connection().sql(sql).to_arrow_table()
    except UnicodeDecodeError as error:
        import duckdb

        # DuckDB quotes the text on which it fails, and may cut the quotation inside a character.
        raise duckdb.InvalidInputException("the statement failed, and its message is no UTF-8") from error


def run_row_by_row(sql: str, input: pa.Table) -> pa.Table:
    """Run one SELECT over *input* whose expressions are wrapped in TRY, so that a failure affects its own row only."""
    con = connection()
    # DuckDB would compute a repeated part once and outside of TRY, where a failure ends the whole statement.
    con.execute("SET disabled_optimizers = 'common_subexpressions'")
    try:
        return run(sql, input)
    finally:
        con.execute("RESET disabled_optimizers")


def quote(text: str) -> str:
    """Return *text* as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
