"""Stores and the query that writes their topic: checked by lint and plan before anything starts, filled by the query's own driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.postgres_server import PostgresServer
from support.stack.jobs import Workspace, workspace
from support.stack.servers import SharedStack
from support.stack.topics import fresh
from support.stores import kit
from support.stores.result_topic import ResultTopic

pytestmark = pytest.mark.integration
SCRIPT = """
SELECT CAST(number AS bigint) AS number, name, speed * 2 AS Twice, System.Timestamp() AS at
INTO doubled FROM results
"""


@pytest.fixture
def space(tmp_path: Path, stack: SharedStack, postgres: PostgresServer) -> Iterator[Workspace]:
    """A folder with a query over results, whose own results go into a table."""
    topic, schema = fresh("results"), fresh("s").replace("-", "_")
    tables = f"""
[outputs.results]
topic = "{topic}"

[outputs.doubled]
topic = "{topic}.doubled"
query = "doubled.sql"
sink_in_job = true

[outputs.doubled.postgres]
url = "{postgres.url()}"
table = "{schema}.doubled"
mode = "upsert"
primary_key = ["number"]
"""
    source = ResultTopic({"bootstrap.servers": stack.bootstrap}, topic, partitions=1)
    source.write(0, 0, 200, is_final=True)
    with workspace(tmp_path / "job", stack, tables) as made:
        made.script("doubled.sql", SCRIPT)
        made.schema = schema  # type: ignore[attr-defined]
        yield made


def test_a_query_fills_its_store_itself(postgres: PostgresServer, space: Workspace) -> None:
    """With sink_in_job the rows are there when the query has ended, with the types of its columns."""
    space.start("query", "doubled.sql").finish()
    with psycopg.connect(postgres.url()) as connection:
        schema = space.schema  # type: ignore[attr-defined]
        rows = connection.execute(
            f'SELECT number, name, "Twice"::text::float8, at FROM {schema}.doubled ORDER BY number'.encode()
        ).fetchall()
    wanted = [json.loads(kit.value_of(0, number)) for number in range(200)]
    assert [row[0] for row in rows] == list(range(200))
    assert [row[2] for row in rows] == [value["speed"] * 2 for value in wanted]


def test_lint_and_plan_compare_the_columns(postgres: PostgresServer, space: Workspace) -> None:
    """A table that lacks a column or has another type is found before anything starts, with the statement that mends it."""
    schema = space.schema  # type: ignore[attr-defined]
    with psycopg.connect(postgres.url()) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"CREATE TABLE {schema}.doubled (number bigint PRIMARY KEY, name jsonb, at timestamptz)".encode())
    lint = space.start("lint", "doubled.sql", "--config", "tidegate.toml")
    assert lint.wait() == 1
    findings = [finding for finding in lint.last["findings"] if finding["code"] == "TG-STORE-COLUMN"]
    assert len(findings) == 1
    assert "has no column for Twice" in findings[0]["what"]
    assert f'ALTER TABLE "{schema}"."doubled" ADD COLUMN "Twice"' in findings[0]["fix"]
    plan = space.start("plan", "doubled.sql").finish()
    assert "TG-STORE-COLUMN" in {warning["code"] for warning in plan["warnings"]}
    again = space.start("lint", "doubled.sql", "--config", "tidegate.toml", TIDEGATE_OUTPUTS__DOUBLED__POSTGRES__SCHEMA_EVOLUTION="add")
    assert not [finding for finding in again.finish()["findings"] if finding["code"].startswith("TG-STORE")]
