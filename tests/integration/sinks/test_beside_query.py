"""Stores and the query that writes their topic: checked by lint and plan before anything starts, filled by the query's own driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.postgres_server import PostgresServer
from support.stack.jobs import Workspace, error_code, workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, delete, fresh, read_ordered
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


@pytest.fixture
def table_alone(tmp_path: Path, stack: SharedStack, postgres: PostgresServer) -> Iterator[tuple[Workspace, ResultTopic, str]]:
    """The same query, into an output that is a table and nothing else: its folder, the topic that it reads, its output's name."""
    topic, output = fresh("results"), fresh("doubled").replace("-", "_")
    tables = f"""
[outputs.results]
topic = "{topic}"

[outputs.{output}.postgres]
url = "{postgres.url()}"
"""
    source = ResultTopic({"bootstrap.servers": stack.bootstrap}, topic, partitions=1)
    with workspace(tmp_path / "job", stack, tables) as made:
        made.script("doubled.sql", SCRIPT.replace("INTO doubled", f"INTO {output}"))
        yield made, source, output


def test_a_table_alone_equals_its_topic_whatever_dies(
    postgres: PostgresServer, stack: SharedStack, table_alone: tuple[Workspace, ResultTopic, str]
) -> None:
    """
    The query makes a topic named like the output and copies it: killed in the middle, and between its last result and the last copy, it
    goes on, and the table has the rows of the topic, each once. Lint and plan say so before.
    """
    space, source, output = table_alone
    source.write(0, 0, 2_000)
    told = [
        f"{output}: topic {output}, made if missing, keeps them for ever; the query itself copies them into postgres",
        f"{output}: stores get name, Twice as JSON, since nothing says its type: declare it in fields of the input, or write CAST",
    ]
    assert space.start("plan", "doubled.sql").finish()["copies"] == told
    assert space.start("lint", "doubled.sql", "--config", "tidegate.toml").finish()["copies"] == told

    with psycopg.connect(postgres.url(), autocommit=True) as connection:

        def numbers() -> list[int]:
            there = connection.execute("SELECT to_regclass(%s)", (output,)).fetchone() != (None,)
            return [row[0] for row in connection.execute(f"SELECT number FROM {output} ORDER BY number".encode())] if there else []

        job = space.start("query", "doubled.sql")
        job.until(lambda: len(numbers()) > 0, "the first rows are there")
        source.write(0, 2_000, 4_000)
        job.kill()
        job = space.start("query", "doubled.sql")
        job.until(lambda: len(numbers()) > 2_000, "it goes on")
        connection.execute("BEGIN")
        connection.execute(f"LOCK TABLE {output} IN EXCLUSIVE MODE".encode())
        source.write(0, 4_000, 5_000, is_final=True)
        job.until(lambda: bool(job.last.get("finished")), "its last result is in the topic")
        assert job.stop()["finished"], "nobody need wait for a store"
        assert job.logged("stopped before its stores had all results: the next start copies the rest")
        job = space.start("query", "doubled.sql")
        job.until(lambda: bool(job.logged("sink starts")), "it goes on copying")
        job.kill()
        connection.execute("ROLLBACK")
        assert space.start("query", "doubled.sql").finish()["copied"] >= 1_000
        assert numbers() == list(range(5_000))
        rows = connection.execute(f'SELECT number, "Twice"::text::float8 FROM {output} ORDER BY number'.encode()).fetchall()
    results = [json.loads(event.value or b"") for event in read_ordered(stack.bootstrap, output, 1).all_events()]
    assert rows == [(result["number"], result["Twice"]) for result in results]
    again = space.start("query", "doubled.sql").finish()
    assert (again["had_ended"], again["copied"]) == (True, 0), "a supervisor that starts it again may rest"
    space.script("other.sql", SCRIPT.replace("speed * 2", "speed * 3").replace("INTO doubled", f"INTO {output}"))
    assert error_code(space.start("query", "other.sql")) == "TG-TOPIC-ENDED", "another query"
    delete(stack.bootstrap, output)
    assert error_code(space.start("query", "doubled.sql")) == "TG-TOPIC-ENDED", "without the topic too"


def test_a_sink_may_be_started_before_its_query(postgres: PostgresServer, stack: SharedStack, space: Workspace) -> None:
    """It waits for the topic that the query makes, and says which command that is; without a topic there is no end to copy up to."""
    sink = space.start("sink", "doubled", "--set", "outputs.doubled.sink_in_job=false")
    sink.until(lambda: "start tidegate query doubled.sql" in sink.errors, "it says what it waits for")
    shown = space.start("status", "doubled")
    assert shown.wait() == 1
    (told,) = [told for told in shown.last["jobs"] if told["job"] == "sink doubled"]
    assert (told["state"], "doubled.sql" in told["waits_for"]) == ("waiting", True)
    assert error_code(space.start("sink", "doubled", "--until-end")) == "TG-TOPIC-MISSING"
    space.start("query", "doubled.sql", "--set", "outputs.doubled.sink_in_job=false").finish()
    assert "had_ended" not in sink.finish()
    assert space.start("sink", "doubled", "--set", "outputs.doubled.sink_in_job=false").finish()["had_ended"], "started once more"
    with psycopg.connect(postgres.url()) as connection:
        schema = space.schema  # type: ignore[attr-defined]
        assert connection.execute(f"SELECT COUNT(*) FROM {schema}.doubled".encode()).fetchone() == (200,)


def test_a_script_that_does_not_fit_may_be_changed(postgres: PostgresServer, table_alone: tuple[Workspace, ResultTopic, str]) -> None:
    """The query is refused before it is bound to its checkpoint: without names of columns, or with others than the table's."""
    space, source, output = table_alone
    source.write(0, 0, 10, is_final=True)
    space.script("all.sql", f"SELECT * INTO {output} FROM results")
    assert error_code(space.start("query", "all.sql")) == "TG-STORE-COLUMNS"
    with psycopg.connect(postgres.url()) as connection:
        connection.execute(f"CREATE TABLE {output} (number bigint, name text)".encode())
    assert error_code(space.start("query", "doubled.sql")) == "TG-STORE-COLUMN"
    space.script("doubled.sql", f"SELECT CAST(number AS bigint) AS number, name INTO {output} FROM results")
    space.start("query", "doubled.sql").finish()
    with psycopg.connect(postgres.url()) as connection:
        assert connection.execute(f"SELECT COUNT(*) FROM {output}".encode()).fetchone() == (10,)


def test_a_topic_of_that_name_that_is_no_result_topic_is_refused(
    stack: SharedStack, table_alone: tuple[Workspace, ResultTopic, str]
) -> None:
    """Nobody named it, so it may be somebody else's: the number of its partitions does not fit, and no setting of the output helps."""
    space, source, output = table_alone
    source.write(0, 0, 10, is_final=True)
    create(stack.bootstrap, output, 3)
    job = space.start("query", "doubled.sql")
    assert error_code(job) == "TG-TOPIC-PARTITIONS"
    assert "name a topic that is not there yet" in job.errors
    assert "output_partitions" not in job.errors


def test_a_bounded_query_ends_when_its_table_has_all(postgres: PostgresServer, table_alone: tuple[Workspace, ResultTopic, str]) -> None:
    """With --until there is no final CTI: the query ends nevertheless, once the table has the results below that time."""
    space, source, output = table_alone
    source.write(0, 0, 200)
    space.start("query", "doubled.sql", "--until", "1970-01-01T00:01:40Z").finish()
    with psycopg.connect(postgres.url()) as connection:
        rows = connection.execute(f"SELECT number FROM {output} ORDER BY number".encode()).fetchall()
    # The results are a second apart.
    assert [row[0] for row in rows] == list(range(100))


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
