"""What a sink says while its store takes nothing: until a write succeeds, since when, and what is in the way."""

from __future__ import annotations

import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from support.postgres_server import PostgresServer
from support.stack.jobs import Job, Workspace, error_code
from support.stack.servers import SharedStack
from support.stack.topics import fresh
from support.stores.result_topic import ResultTopic
from support.valkey_server import Server

from tidegate.platform.stack.embedded import free_port

pytestmark = pytest.mark.integration
COLUMNS = (
    'partition = "bigint"\nnumber = "bigint"\nname = "nvarchar(max)"\nspeed = "float"\nat = "datetime"\nis_odd = "bit"\nmore = "record"\n'
)


def output_of(topic: ResultTopic) -> str:
    """Return an output's name that no other test has: sinks publish by it."""
    return topic.name.replace("-", "_")


class Scene:
    """A result topic, a folder whose settings lead it into a store, and the metrics port of its sink."""

    def __init__(self, space: Workspace, topic: ResultTopic, port: int) -> None:
        self.space, self.topic, self._port = space, topic, port
        self.output = output_of(topic)

    def start(self) -> Job:
        return self.space.start("sink", self.output, "--set", f"metrics.port={self._port}")

    def ready(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/ready", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
                families = list(text_string_to_metric_families(answer.read().decode()))
        except urllib.error.URLError:  # it has not opened its port yet
            return -1
        samples = [sample for family in families for sample in family.samples if sample.name == f"tidegate_sink_{name}"]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


@pytest.fixture
def make_scene(tmp_path: Path, stack: SharedStack) -> Iterator[Callable[[str], Scene]]:
    """Make the scene of a store, by the table of its settings."""
    made: list[Workspace] = []

    def make(table: str) -> Scene:
        topic = ResultTopic({"bootstrap.servers": stack.bootstrap}, fresh("results"), partitions=1)
        tables = f'[outputs.NAME]\ntopic = "{topic.name}"\n[outputs.NAME.columns]\n{COLUMNS}\n{table}\n'
        space = Workspace(tmp_path / "job", stack, tables.replace("NAME", output_of(topic)))
        made.append(space)
        return Scene(space, topic, free_port())

    yield make
    for space in made:
        space.clear()


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement as another user of the server; return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_locked_table_is_no_live_sink(postgres: PostgresServer, make_scene: Callable[[str], Scene]) -> None:
    """
    While another session holds the table the store answers all reads. The sink is waiting in each poll, since the first failure, and says
    how to find that session: ended as it says, the sink goes on.
    """
    url, table = postgres.url(), fresh("locked").replace("-", "_")
    scene = make_scene(f'[outputs.NAME.postgres]\nurl = "{url}"\ntable = "{table}"\n')
    scene.topic.write(0, 0, 50)
    job = scene.start()
    job.until(lambda: scene.metric("results_total") == 50, "all is stored")
    assert scene.ready()[0] == 200
    with contextlib.suppress(psycopg.errors.AdminShutdown), psycopg.connect(url) as other:
        other.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE".encode())
        scene.topic.write(0, 50, 80)
        job.until(lambda: scene.ready()[0] == 503, "it waits")
        said, began_s = set(), time.monotonic()
        while time.monotonic() - began_s < 25:
            status, text = scene.ready()
            assert status == 503
            said.add(text)
            time.sleep(0.2)
        assert len({text.partition("waiting since ")[2].partition(": ")[0] for text in said}) == 1, "the first since stays"
        assert all("another session holds a lock" in text for text in said)
        assert scene.metric("retries_total") >= 2
        assert scene.metric("waiting_seconds", reason="locked") > 20
        assert scene.metric("waiting_seconds", reason="unreachable") == 0
        assert scene.metric("oldest_waiting_seconds", store="postgres") > 20
        assert scene.metric("consumer_lag", store="postgres") > 0
        find = said.pop().partition("end what holds it: ")[2].partition("; then ")[0]
        holders = [row for row in execute(url, find) if "LOCK TABLE" in row[2]]
        assert len(holders) == 1
        execute(url, f"SELECT pg_terminate_backend({holders[0][0]})")
        job.until(lambda: scene.ready()[0] == 200, "it goes on")
    assert execute(url, f"SELECT COUNT(*) FROM {table}") == [(80,)]
    assert (scene.metric("results_total"), scene.metric("waiting_seconds"), scene.metric("oldest_waiting_seconds")) == (80, 0, 0)
    assert "waits_for" not in job.stop()


def test_a_store_that_is_away_and_one_that_is_full_are_told_apart(make_scene: Callable[[str], Scene], tmp_path: Path) -> None:
    """The server is reached by nobody; then it answers and has no room; then it takes the rest: one wait with one beginning."""
    (tmp_path / "full").mkdir()
    server = Server(tmp_path / "full", "--appendonly", "yes")
    try:
        client = redis.Redis(port=server.port)
        client.config_set("maxmemory-policy", "noeviction")
        table = f'[outputs.NAME.redis]\nurl = "redis://127.0.0.1:{server.port}/0"\nkind = "stream"\ndurability = "memory"\n'
        scene = make_scene(table)
        scene.topic.write(0, 0, 10)
        job = scene.start()
        job.until(lambda: scene.metric("results_total") == 10, "all is stored")
        client.config_set("maxmemory", "1")
        scene.topic.write(0, 10, 20)
        job.until(lambda: scene.metric("waiting_seconds", reason="full") > 0, "it is full")
        assert scene.ready()[0] == 503
        assert "has no room" in scene.ready()[1]
        since = scene.ready()[1].partition("waiting since ")[2].partition(": ")[0]
        server.kill()
        job.until(lambda: scene.metric("waiting_seconds", reason="unreachable") > 0, "it is away")
        assert scene.ready()[1].partition("waiting since ")[2].partition(": ")[0] == since
        server.start()
        job.until(lambda: scene.ready()[0] == 200, "it goes on")
        assert scene.metric("waiting_seconds") == 0
        job.stop()
    finally:
        server.stop()


def test_two_sinks_of_one_output_are_two_lines(postgres: PostgresServer, make_scene: Callable[[str], Scene]) -> None:
    """Each with its own state; that one was killed is seen at once, since its process can be asked, and forgotten with the next start."""
    scene = make_scene(f'[outputs.NAME.postgres]\nurl = "{postgres.url()}"\ntable = "{fresh("two").replace("-", "_")}"\n')
    scene.topic.write(0, 0, 10)

    def states() -> list[str]:
        shown = scene.space.start("status", scene.output)
        shown.wait()
        return [told["state"] for told in shown.last["jobs"] if told["job"] == f"sink {scene.output}"]

    assert states() == ["never started"]
    jobs = [scene.space.start("sink", scene.output) for _ in range(2)]
    jobs[0].until(lambda: states() == ["live", "live"], "both are shown")
    jobs[0].kill()
    killed_s = time.monotonic()
    assert sorted(states()) == ["gone", "live"]
    assert time.monotonic() - killed_s < 10, "before the silence of a job elsewhere would show it"
    third = scene.space.start("sink", scene.output)
    third.until(lambda: states() == ["live", "live"], "the new one takes the place of the killed one")
    jobs[1].stop()
    third.stop()
    assert len(states()) <= 2


def test_a_column_that_is_dropped_while_rows_are_written_names_its_statement(
    postgres: PostgresServer, make_scene: Callable[[str], Scene]
) -> None:
    """The job ends with the statement; it is run, and the next start goes on."""
    url, table = postgres.url(), fresh("dropped").replace("-", "_")
    scene = make_scene(f'[outputs.NAME.postgres]\nurl = "{url}"\ntable = "{table}"\n')
    scene.topic.write(0, 0, 10)
    job = scene.start()
    job.until(lambda: scene.metric("results_total") == 10, "all is stored")
    execute(url, f"ALTER TABLE {table} DROP COLUMN speed")
    scene.topic.write(0, 10, 20)
    assert error_code(job) == "TG-STORE-COLUMN"
    statement = job.errors.partition("or: ALTER TABLE ")[2].partition('"}}')[0].partition('", "')[0].replace('\\"', '"')
    assert statement.endswith('ADD COLUMN "speed" double precision')
    execute(url, f"ALTER TABLE {statement}")
    scene.space.start("sink", scene.output, "--until-end").finish()
    assert execute(url, f"SELECT COUNT(*), COUNT(speed) FROM {table}") == [(20, 10)]
