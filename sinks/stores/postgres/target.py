"""
The table for the results: its name, its columns, and whether they fit those of the query.

Law: an existing table is only changed if ``schema_evolution`` says so, and then only by columns added at its end, all of them null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import sql

from sinks.stores.base import StoreError
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings
from tidegate.records.result_columns import Column

PROGRESS_TABLE = "tidegate_progress"
# The types of the columns that a sink makes; columns of any other kind (record, array, any) are JSON.
MADE_AS = {
    "bit": "boolean",
    "bigint": "bigint",
    "float": "double precision",
    "datetime": "timestamp with time zone",
    "nvarchar(max)": "text",
}
_TEXTS = {"text", "character varying", "character", "json", "jsonb"}
# The types of existing columns that take values of a kind; a column of any type takes text, if it can read it.
_TAKEN_BY = {
    "bit": {"boolean"},
    "bigint": {"bigint", "integer", "smallint", "numeric", "double precision", "real"},
    "float": {"double precision", "real", "numeric"},
    "datetime": {"timestamp with time zone", "timestamp without time zone", "date"},
}
_COLUMNS = """
SELECT attname, format_type(atttypid, NULL), attnotnull, atthasdef OR attidentity <> '', attgenerated <> '' OR attidentity = 'a'
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# Unique indexes without condition or expression: the names of their key columns, and whether NULLs count as equal.
_UNIQUE = """
SELECT (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey[0:indnkeyatts - 1])),
       to_jsonb(pg_index)->>'indnullsnotdistinct' = 'true'
FROM pg_index WHERE indrelid = %s AND indisunique AND indisvalid AND indimmediate AND indpred IS NULL AND indexprs IS NULL
"""
# The first right that the user lacks: on an existing table, the right to use at least one column; on a missing one, the right to make it.
_LACKING = """
WITH wanted (name, rights) AS (VALUES (%(table)s::text, %(rights)s::text[]), (%(progress)s, %(all)s::text[])),
     there AS (SELECT wanted.name, rights, pg_class.oid FROM wanted LEFT JOIN pg_class
               ON relname = wanted.name AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s::text))
SELECT current_user, lacking."right", lacking."on" FROM (
    SELECT 1, 'CREATE', 'DATABASE ' || quote_ident(current_database())
    WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s) AND NOT has_database_privilege(current_database(), 'CREATE')
    UNION ALL SELECT 2, 'USAGE', 'SCHEMA ' || quote_ident(nspname) FROM pg_namespace
    WHERE nspname = %(schema)s AND NOT has_schema_privilege(oid, 'USAGE')
    UNION ALL SELECT 3, 'CREATE', 'SCHEMA ' || quote_ident(nspname) FROM pg_namespace, there
    WHERE nspname = %(schema)s AND there.oid IS NULL AND NOT has_schema_privilege(pg_namespace.oid, 'CREATE')
    UNION ALL SELECT 4, lack, quote_ident(%(schema)s) || '.' || quote_ident(name) FROM there, unnest(rights) AS lack
    WHERE oid IS NOT NULL AND NOT has_any_column_privilege(oid, lack)
    UNION ALL SELECT 5, 'TEMPORARY', 'DATABASE ' || quote_ident(current_database())
    WHERE %(key)s AND NOT has_database_privilege(current_database(), 'TEMPORARY')
) AS lacking (step, "right", "on") ORDER BY step LIMIT 1
"""
# The name and the columns of the primary key.
_PRIMARY_KEY = """
SELECT conname, (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY (conkey))
FROM pg_constraint WHERE conrelid = %s AND contype = 'p'
"""
# The first version of the server with NULLS NOT DISTINCT.
_EQUAL_NULLS_SINCE = 150_000
# An advisory lock: sessions that make or change tables do it one after the other.
_LOCK = 0x7D6_A7E


class TableName(NamedTuple):
    """A table by schema and name, both without quotes."""

    schema: str
    table: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    def beside(self, table: str) -> sql.Identifier:
        """Return another table of the same schema."""
        return sql.Identifier(self.schema, table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def parse_name(text: str, schema: str) -> TableName:
    """Return the table that a setting names; *schema* counts if it names none. Names without quotes become lower case, as in SQL."""
    parts = [part[1:-1].replace('""', '"') if part.startswith('"') else part.lower() for part in re.findall(r'"(?:[^"]|"")+"|[^.]+', text)]
    return TableName(*parts) if len(parts) == 2 else TableName(schema, parts[0])


def find_name(connection: psycopg.Connection[Any], settings: PostgresSettings, output: str) -> TableName:
    """Return the table of an output; without a schema in its name it is of the connection's own."""
    schema = connection.execute("SELECT coalesce(current_schema(), 'public')").fetchone()[0]  # type: ignore[index]
    return parse_name(settings.table or output, schema)


class _TableColumn(NamedTuple):
    name: str
    kind: str
    is_required: bool
    has_default: bool
    is_computed: bool


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """The table: its name, and the names of its columns for the query's columns, in the order of the query."""

    name: TableName
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]

    def column_list(self, columns: Sequence[str] | None = None) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self.columns if columns is None else columns))


def find_target(
    connection: psycopg.Connection[Any],
    settings: PostgresSettings,
    output: str,
    columns: Sequence[Column],
    access: Literal["read", "check", "make"],
) -> PostgresTarget:
    """
    Return the table of an output, within the transaction of *connection*. *access* "check" also checks the rights to write it, "make" also
    makes missing tables and columns. Raises StoreError: the table does not fit the query, a right is lacking, or the table is gone though
    results have been written.
    """
    may_change = access == "make"
    name = find_name(connection, settings, output)
    if access != "read":
        _check_rights(connection, name, settings)
    if may_change:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        _make_missing(connection, name, settings, columns)
    existing = _read_columns(connection, name)
    if not existing:
        if access == "check" and find_relation(connection, TableName(name.schema, PROGRESS_TABLE)) is not None:
            _check_not_lost(connection, name)
        _check_key_columns(name, settings.primary_key, [column for column, _ in columns])
        return PostgresTarget(name, tuple(column for column, _ in columns), settings.primary_key)
    missing = [(column, kind) for column, kind in columns if _find(existing, column) is None]
    if missing and settings.schema_evolution == "none":
        raise _column_error(
            name, f"has no column for {', '.join(column for column, _ in missing)}", _add_statement(connection, name, missing)
        )
    if missing and may_change:
        connection.execute(_add_columns(name, missing))
        existing = _read_columns(connection, name)
    _check_columns(connection, name, existing, [column for column in columns if column not in missing or may_change], columns)

    def spelled(wanted: Iterable[str]) -> tuple[str, ...]:
        """Return names of columns as the table spells them."""
        return tuple(found.name if (found := _find(existing, column)) else column for column in wanted)

    target = PostgresTarget(name, spelled(column for column, _ in columns), spelled(settings.primary_key))
    if settings.primary_key:
        _check_key(connection, target, existing)
    return target


def _check_rights(connection: psycopg.Connection[Any], name: TableName, settings: PostgresSettings) -> None:
    """Raise StoreError, with the GRANT to run, if the user lacks a right on the tables, or the right to make them."""
    place = {"schema": name.schema, "key": bool(settings.primary_key), "progress": PROGRESS_TABLE, "table": name.table}
    rights = {"append": ["INSERT"], "insert": ["SELECT", "INSERT"], "upsert": ["SELECT", "INSERT", "UPDATE"]}[settings.mode]
    lacking = connection.execute(_LACKING, {**place, "rights": rights, "all": ["SELECT", "INSERT", "UPDATE"]}).fetchone()
    if lacking is not None:
        user, right, on = lacking
        raise StoreError(
            f"the user {user} has no right to {right} on {on}",
            code="TG-STORE-REFUSED",
            where=str(name),
            fix=f"GRANT {right} ON {on} TO {user}",
        )


def _make_missing(connection: psycopg.Connection[Any], name: TableName, settings: PostgresSettings, columns: Sequence[Column]) -> None:
    if connection.execute("SELECT to_regnamespace(quote_ident(%s))", [name.schema]).fetchone() == (None,):
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name.schema)))
    # Looked up first: CREATE ... IF NOT EXISTS needs the right to create even if the table exists.
    if find_relation(connection, TableName(name.schema, PROGRESS_TABLE)) is None:
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (table_name text, topic text, partition integer, topic_id text NOT NULL, position bigint NOT NULL, "
                "log_offset bigint NOT NULL, updated_at timestamp with time zone NOT NULL, PRIMARY KEY (table_name, topic, partition))"
            ).format(name.beside(PROGRESS_TABLE))
        )
    if find_relation(connection, name) is None:
        _check_not_lost(connection, name)
        _check_key_columns(name, settings.primary_key, [column for column, _ in columns])
        parts = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(_type_of(kind))) for column, kind in columns]
        if settings.primary_key:
            # A result may have NULL in its key, as one of GROUP BY has if a field is absent. A primary key would refuse it.
            kind = "UNIQUE NULLS NOT DISTINCT" if has_equal_nulls(connection) else "PRIMARY KEY"
            parts.append(sql.SQL(f"{kind} ({{}})").format(_names(settings.primary_key)))
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name.identifier, sql.SQL(", ").join(parts)))


def _check_not_lost(connection: psycopg.Connection[Any], name: TableName) -> None:
    counted = sql.SQL("SELECT sum(position) FROM {} WHERE table_name = %s").format(name.beside(PROGRESS_TABLE))
    written = connection.execute(counted, [name.table]).fetchone()
    if written and written[0]:
        fix = f"bring it back; or copy all results again: DELETE FROM {name.schema}.{PROGRESS_TABLE} WHERE table_name = '{name.table}'"
        what = f"the table is gone, though {written[0]:,} results have been written into it"
        raise StoreError(what, code="TG-STORE-LOST", where=str(name), fix=fix)


def find_relation(connection: psycopg.Connection[Any], name: TableName) -> int | None:
    """Return the number of a table, None if there is none."""
    found = connection.execute("SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))::oid", [*name]).fetchone()
    return None if found is None or found[0] is None else int(found[0])


def _read_columns(connection: psycopg.Connection[Any], name: TableName) -> list[_TableColumn]:
    relation = find_relation(connection, name)
    return [] if relation is None else [_TableColumn(*row) for row in connection.execute(_COLUMNS, [relation])]


def _find(existing: Sequence[_TableColumn], name: str) -> _TableColumn | None:
    """Return the column of that name, else the only one whose name differs only in case: SQL writes unquoted names in lower case."""
    exact = [column for column in existing if column.name == name]
    found = exact or [column for column in existing if column.name.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _type_of(kind: str) -> str:
    return MADE_AS.get(kind, "jsonb")


def _add_columns(name: TableName, columns: Sequence[Column]) -> sql.Composed:
    added = [sql.SQL("ADD COLUMN {} {}").format(sql.Identifier(column), sql.SQL(_type_of(kind))) for column, kind in columns]
    return sql.SQL("ALTER TABLE {} {}").format(name.identifier, sql.SQL(", ").join(added))


def _add_statement(connection: psycopg.Connection[Any], name: TableName, columns: Sequence[Column]) -> str:
    return f'set schema_evolution = "add", or: {_add_columns(name, columns).as_string(connection)}'


def _check_columns(
    connection: psycopg.Connection[Any],
    name: TableName,
    existing: Sequence[_TableColumn],
    present: Sequence[Column],
    columns: Sequence[Column],
) -> None:
    def alter(column: str, change: str) -> str:
        made = sql.SQL(f"ALTER TABLE {{}} ALTER COLUMN {{column}} {change}")
        return made.format(name.identifier, column=sql.Identifier(column)).as_string(connection)

    for column, kind in present:
        found = _find(existing, column)
        if found is None:
            continue
        if found.is_computed:
            raise _column_error(name, f"computes its column {found.name}, which the query has too", "give one of them another name")
        if kind != "nvarchar(max)" and found.kind not in _TAKEN_BY.get(kind, _TEXTS):
            made = _type_of(kind)
            fix = f"{alter(found.name, f'TYPE {made} USING {{column}}::{made}')}; or CAST in the query"
            raise _column_error(name, f"has column {found.name} of type {found.kind}, and the query's is {kind}", fix)
    wanted = {found.name for column, _ in columns if (found := _find(existing, column))}
    for existing_column in existing:
        if existing_column.is_required and not existing_column.has_default and existing_column.name not in wanted:
            what = f"needs a value in column {existing_column.name}, which the query does not have"
            statement = alter(existing_column.name, "DROP NOT NULL")
            raise _column_error(name, what, f"{statement}; or select it in the query, or give the column a default")


def _check_key_columns(name: TableName, primary_key: Sequence[str], columns: Sequence[str]) -> None:
    unknown = sorted(set(primary_key) - set(columns))
    if unknown:
        raise _column_error(name, f"has no column {unknown[0]}, which primary_key names", f"name columns of it: {', '.join(columns)}")


def _check_key(connection: psycopg.Connection[Any], target: PostgresTarget, existing: Sequence[_TableColumn]) -> None:
    _check_key_columns(target.name, target.primary_key, [column.name for column in existing])
    unique = connection.execute(_UNIQUE, [find_relation(connection, target.name)]).fetchall()
    # For each index on just the key columns: whether NULLs count as equal.
    nulls_are_equal = [nulls for columns, nulls in unique if set(columns) == set(target.primary_key)]
    names = ", ".join(target.primary_key)
    nullable = [column.name for column in existing if column.name in target.primary_key and not column.is_required]
    if not nulls_are_equal:
        what = f"has no unique index on just the columns of primary_key ({names})"
        raise _column_error(target.name, what, _unique_statement(connection, target, nullable))
    if nullable and not any(nulls_are_equal):
        what = f"takes any number of rows whose {nullable[0]}, of primary_key, is NULL"
        raise _column_error(target.name, what, _unique_statement(connection, target, nullable))


def has_equal_nulls(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the server has unique indexes in which NULLs count as equal."""
    return connection.info.server_version >= _EQUAL_NULLS_SINCE


def null_refusals(connection: psycopg.Connection[Any], target: PostgresTarget) -> dict[str, str]:
    """Return the columns of the key in which the table takes no NULL, and the statement that makes it take one (empty: none does)."""
    relation = find_relation(connection, target.name)
    if relation is None:
        return {} if has_equal_nulls(connection) else dict.fromkeys(target.primary_key, "")
    required = [column.name for column in _read_columns(connection, target.name) if column.is_required]
    return {column: allow_null(connection, target, column) for column in target.primary_key if column in required}


def allow_null(connection: psycopg.Connection[Any], target: PostgresTarget, column: str) -> str:
    """Return the statement that makes the table take NULL in a column; empty if none does."""
    changes = [sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(sql.Identifier(column))]
    if column in target.primary_key:
        if not has_equal_nulls(connection):
            return ""
        found = connection.execute(_PRIMARY_KEY, [find_relation(connection, target.name)]).fetchone()
        # The columns of a primary key stay NOT NULL without it.
        changes[:0] = [sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(found[0]))] if found and column in found[1] else []
        changes.append(sql.SQL("ADD UNIQUE NULLS NOT DISTINCT ({})").format(_names(target.primary_key)))
    return sql.SQL("ALTER TABLE {} {}").format(target.name.identifier, sql.SQL(", ").join(changes)).as_string(connection)


def _unique_statement(connection: psycopg.Connection[Any], target: PostgresTarget, nullable: Sequence[str]) -> str:
    """Return the statement that makes the key identify a row, whatever columns of it are *nullable*."""
    if nullable and not has_equal_nulls(connection):
        changes = [sql.SQL("ALTER COLUMN {} SET NOT NULL").format(sql.Identifier(column)) for column in nullable]
        changes.append(sql.SQL("ADD UNIQUE ({})").format(_names(target.primary_key)))
        return sql.SQL("ALTER TABLE {} {}").format(target.name.identifier, sql.SQL(", ").join(changes)).as_string(connection)
    kind = " NULLS NOT DISTINCT" if nullable else ""
    made = sql.SQL(f"CREATE UNIQUE INDEX ON {{}} ({{}}){kind}")
    return made.format(target.name.identifier, _names(target.primary_key)).as_string(connection)


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _column_error(name: TableName, what: str, fix: str) -> StoreError:
    return StoreError(f"table {name} {what}", code="TG-STORE-COLUMN", where=str(name), fix=fix)
