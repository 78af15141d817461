"""
The fixes that errors of stores print, played: from the error to the running job. The statements of single stores are played in
``tests/sinks/stores/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.postgres_server import PostgresServer
from support.stack.jobs import Job, Workspace, error_code, settings_of, workspace
from support.stack.servers import SharedStack
from support.stack.topics import fresh, records
from support.stores.result_topic import ResultTopic

pytestmark = pytest.mark.integration
COLUMNS = "CAST(name AS nvarchar(max)) AS name, CAST(number AS bigint) AS number"
# Of the results that the topic holds, each fifth has no name.
COUNT, NAMELESS = 100, 20


class Scene:
    """A query over results, whose own results go into a table with a key."""

    def __init__(self, space: Workspace, source: ResultTopic, output: str, url: str) -> None:
        self.space, self.source, self.output, self._url = space, source, output, url

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def count(self) -> int:
        ((count,),) = self.execute(f"SELECT COUNT(*) FROM {self.output}")
        return int(count)

    def query(self, **changes: object) -> Job:
        flags = {f"outputs__{self.output}__postgres__{name}": value for name, value in changes.items()}
        return self.space.start("query", "named.sql", *settings_of(**flags))

    def findings(self, command: str, key: str) -> list[dict[str, str]]:
        job = self.space.start(command, "named.sql", *(("--config", "tidegate.toml") if command == "lint" else ()))
        return [told for told in job.finish()[key] if told["code"] == "TG-LINT-NULL-KEY"]


@pytest.fixture
def scene(tmp_path: Path, stack: SharedStack, postgres: PostgresServer) -> Iterator[Scene]:
    """Its topic holds all results and has ended; the table is not there yet."""
    topic, output = fresh("results"), fresh("named").replace("-", "_")
    table = f'[outputs.{output}.postgres]\nurl = "{postgres.url()}"\nmode = "upsert"\nprimary_key = ["name", "number"]\n'
    fields = '[outputs.results.columns]\nname = "nvarchar(max)"\nnumber = "bigint"\n'
    source = ResultTopic({"bootstrap.servers": stack.bootstrap}, topic, partitions=1)
    source.write(0, 0, COUNT, is_final=True)
    with workspace(tmp_path / "job", stack, f'[outputs.results]\ntopic = "{topic}"\n{fields}\n{table}') as space:
        space.script("named.sql", f"SELECT {COLUMNS} INTO {output} FROM results")
        yield Scene(space, source, output, postgres.url())


def error_of(job: Job) -> dict[str, str]:
    """Return the one error that a job ended with."""
    error_code(job)
    return next(json.loads(line)["error"] for line in job.errors.splitlines() if line.startswith('{"error": '))


def test_a_table_that_is_made_takes_null_in_its_key(scene: Scene) -> None:
    """Nothing is warned of, and every result is a row."""
    assert scene.findings("lint", "findings") == scene.findings("plan", "warnings") == []
    scene.query().finish()
    assert scene.count() == COUNT


def test_a_primary_key_that_refuses_null_is_changed_by_the_statement_shown(scene: Scene) -> None:
    """
    A table that is there may have a primary key: lint and plan say it ahead. The job ends at the row, a changed query does not help, as the
    row stands in the topic; the statement does, and the same command goes on.
    """
    scene.execute(f"CREATE TABLE {scene.output} (name text, number bigint, PRIMARY KEY (name, number))")
    (linted, _), (planned, _) = scene.findings("lint", "findings"), scene.findings("plan", "warnings")
    assert linted["what"] == planned["what"]
    assert linted["what"].startswith("key column name may be NULL")
    error = error_of(scene.query())
    assert (error["code"], "null value in column" in error["what"]) == ("TG-STORE-ROW", True)
    statement = error["fix"].partition("; or ")[0]
    assert linted["fix"].startswith(statement)
    scene.execute(statement)
    assert scene.findings("lint", "findings")[0]["what"].startswith("key column number"), "of this one nothing is known either"
    scene.query().finish()
    assert scene.count() == COUNT


def test_rows_that_a_store_can_never_take_are_passed_over(stack: SharedStack, scene: Scene) -> None:
    """The other way out: dead letters, each with the store's words; the job goes on from where it stood."""
    scene.execute(f"CREATE TABLE {scene.output} (name text, number bigint, PRIMARY KEY (name, number))")
    error = error_of(scene.query())
    assert error["example"] == 'on_error = "dead_letter"'
    assert f"they then go to {scene.output}.dead" in error["fix"]
    scene.query(on_error="dead_letter").finish()
    assert scene.count() == COUNT - NAMELESS
    letters = list(records(stack.bootstrap, f"{scene.output}.dead"))
    assert len(letters) == NAMELESS
    assert all(b"null value in column" in (dict(letter.headers() or ())["reason"] or b"") for letter in letters)


def test_a_condition_in_the_query_is_seen(scene: Scene) -> None:
    """Before anything is written the query may be changed: lint and plan warn no more."""
    scene.execute(f"CREATE TABLE {scene.output} (name text, number bigint, PRIMARY KEY (name, number))")
    script = (scene.space.folder / "named.sql").read_text()
    scene.space.script("named.sql", f"{script} WHERE CAST(name AS nvarchar(max)) IS NOT NULL AND CAST(number AS bigint) IS NOT NULL")
    assert scene.findings("lint", "findings") == scene.findings("plan", "warnings") == []
    scene.query().finish()
    assert scene.count() == COUNT - NAMELESS


def test_a_rule_of_the_table_is_in_the_words_of_the_store(scene: Scene) -> None:
    """A constraint that the store names is dropped, and the same command goes on."""
    scene.execute(f"CREATE TABLE {scene.output} (name text, number bigint CONSTRAINT small CHECK (number < 50))")
    scene.execute(f"CREATE UNIQUE INDEX ON {scene.output} (name, number) NULLS NOT DISTINCT")
    error = error_of(scene.query())
    assert (error["code"], '"small"' in error["what"]) == ("TG-STORE-ROW", True)
    scene.execute(f"ALTER TABLE {scene.output} DROP CONSTRAINT small")
    scene.query().finish()
    assert scene.count() == COUNT


def test_a_column_that_is_dropped_names_its_statement(scene: Scene) -> None:
    """While the job runs: it ends with the statement, which is run; the same command goes on."""
    scene.execute(f"CREATE TABLE {scene.output} (name text, number bigint CHECK (number < 50), UNIQUE NULLS NOT DISTINCT (name, number))")
    assert error_code(scene.query()) == "TG-STORE-ROW"
    scene.execute(f"ALTER TABLE {scene.output} DROP COLUMN number")
    error = error_of(scene.query())
    assert (error["code"], "has no column for number" in error["what"]) == ("TG-STORE-COLUMN", True)
    scene.execute(error["fix"].rpartition("or: ")[2])
    error = error_of(scene.query())
    assert (error["code"], "has no unique index" in error["what"]) == ("TG-STORE-COLUMN", True)
    scene.execute(error["fix"])
    scene.query().finish()
    assert scene.count() == COUNT


def test_settings_that_are_missing_are_named(scene: Scene, postgres: PostgresServer) -> None:
    """An output without a store, without columns, and one whose topic no query writes."""
    error = error_of(scene.space.start("sink", "results"))
    assert error["code"] == "TG-STORE-NONE"
    config = scene.space.folder / "tidegate.toml"
    table = error["fix"].partition("such as ")[2].partition(" ")[0]
    assert table == "[outputs.results.postgres]"
    name = fresh("copied").replace("-", "_")
    config.write_text(f'{table}\nurl = "{postgres.url()}"\ntable = "{name}"\n{config.read_text()}')
    refused = error_of(scene.space.start("sink", "results", "--until-end"))
    assert refused["code"] == "TG-STORE-ROW", "the results have more columns than are declared"
    more = 'partition = "bigint"\nspeed = "float"\nat = "datetime"\nis_odd = "bit"\nmore = "record"\n'
    config.write_text(config.read_text().replace('name = "nvarchar(max)"\nnumber = "bigint"\n', ""))
    error = error_of(scene.space.start("sink", "results", "--until-end"))
    assert (error["code"], "give outputs.results.columns" in error["fix"]) == ("TG-STORE-COLUMNS", True)
    columns = f'[outputs.results.columns]\nname = "nvarchar(max)"\nnumber = "bigint"\n{more}'
    config.write_text(config.read_text().replace("[outputs.results.columns]\n", columns))
    error = error_of(scene.space.start("sink", "results", "--until-end"))
    assert (error["code"], "has no column for" in error["what"]) == ("TG-STORE-COLUMN", True)
    scene.execute(error["fix"].rpartition("or: ")[2])
    scene.space.start("sink", "results", "--until-end").finish()
    assert scene.execute(f"SELECT COUNT(*) FROM {name}") == [(COUNT,)]
