"""
``tidegate reset`` and ``tidegate topic``: what a job has made goes as one, and a new start gives the bytes of the first run.

Level 3 throughout: results and ordered events of the run after a reset are compared with those of the first run.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from support.postgres_server import PostgresServer
from support.stack.commands import run_command
from support.stack.drawn_logs import START_MS
from support.stack.jobs import Workspace, error_code, workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, exists, fresh, header, records

from ordering.protocol.wire import HEADER_NAME
from tidegate.basics.fault_points import RESET_POINTS, VARIABLE
from tidegate.platform.observe.progress_store import progress_key, sink_key

pytestmark = pytest.mark.integration

SCRIPT = """
SELECT k, System.Timestamp() AS at, COUNT(*) AS n INTO counts FROM events TIMESTAMP BY at OVER k GROUP BY k, TumblingWindow(second, 10);
SELECT k, v INTO all_of_them FROM events TIMESTAMP BY at OVER k
"""


class Chain:
    """A raw topic with history, the ingest over it, and a query with two outputs: a table and files, and a topic."""

    def __init__(self, folder: Path, stack: SharedStack, postgres: PostgresServer, space: Workspace, topic: str) -> None:
        self.folder, self.stack, self.postgres, self.space, self.topic = folder, stack, postgres, space, topic
        self.table = f'"{topic}".counts'

    def tidegate(self, *arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder, or in another one; return it when it has ended."""
        own = {"TIDEGATE_KAFKA__BOOTSTRAP": self.stack.bootstrap, "TIDEGATE_REDIS__URL": self.stack.redis_url}
        return run_command(folder or self.folder, *arguments, environment=os.environ | own | environment)

    def run(self) -> None:
        """Order all and compute all results."""
        self.space.start("ingest", "events", "--until-end").finish()
        self.space.start("query", "both.sql").finish()

    def made(self) -> dict[str, Any]:
        """Return the bytes of everything that the jobs have made."""
        topics = [f"{self.topic}.ordered", f"{self.topic}-counts", f"{self.topic}-all"]
        with psycopg.connect(self.postgres.url()) as connection:
            rows = connection.execute(f"SELECT k, at, n FROM {self.table} ORDER BY at, k".encode()).fetchall()
        events = {
            name: [(m.partition(), m.key(), m.value()) for m in records(self.stack.bootstrap, name) if is_event(m)] for name in topics
        }
        files = {path.name: path.read_bytes() for path in (self.folder / "out").iterdir()}
        return {"events": events, "rows": rows, "files": files}


def is_event(message: Any) -> bool:
    """CTIs may differ between runs; events may not."""
    return bool(message.value()) and len(header(message, HEADER_NAME)) > 0 and message.value()[:1] == b"{"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, stack: SharedStack, postgres: PostgresServer) -> Iterator[Chain]:
    """A chain that has run once; its raw topic was made and filled by the command line. All tests but the last leave it as it was."""
    topic, folder = fresh("reset"), tmp_path_factory.mktemp("reset") / "job"
    tables = f"""
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"

[outputs.counts]
topic = "{topic}-counts"
files = "out"
sink_in_job = true

[outputs.counts.postgres]
url = "{postgres.url()}"
table = '"{topic}".counts'

[outputs.all_of_them]
topic = "{topic}-all"
"""
    with workspace(folder, stack, tables) as space:
        made = Chain(folder, stack, postgres, space, topic)
        space.script("both.sql", SCRIPT)
        lines = [json.dumps({"at": START_MS / 1000 + number * 0.7, "k": "abc"[number % 3], "v": number}) for number in range(300)]
        (folder / "history.ndjson").write_text("\n".join(lines))
        assert made.tidegate("topic", "create", topic, "--partitions", "2", "--timestamp-type", "create").returncode == 0
        assert made.tidegate("produce", "history.ndjson", topic, "--key", "k", "--timestamp-by", "at").returncode == 0
        made.run()
        yield made


def test_a_reset_and_a_new_start_give_the_bytes_of_the_first_run(chain: Chain, tmp_path: Path) -> None:
    """
    Listed first, in whichever folder the command runs; nothing goes without a yes; the query's outputs go together; then nothing is left,
    and all comes again.
    """
    first = chain.made()
    assert first["rows"]
    assert first["files"]
    (chain.folder / "out" / "notes.txt").write_text("of somebody else")
    asked = chain.tidegate("reset", "all_of_them", "--rows")
    assert asked.returncode == 2
    assert "example: tidegate reset all_of_them --yes" in asked.stderr
    # A sink of another project, whose output has the same name and copies another topic, is none of this job.
    stranger = {"state": "live", "output": "counts", "reads": "another", "at_ms": time.time_ns() // 1_000_000 + 3_600_000}
    with redis.Redis.from_url(chain.stack.redis_url) as client:
        client.hset(progress_key(sink_key("counts")), "job stranger", json.dumps(stranger))
    dry = chain.tidegate("reset", "counts", "--rows", "--dry-run", "--format", "json")
    told = json.loads(dry.stdout)
    assert (told["job"], told["outputs"], told["deleted"]) == ("query counts", ["counts", "all_of_them"], False)
    kinds = {item["kind"]: item for item in told["deletes"]}
    assert set(kinds) == {"checkpoint", "topic", "rows", "files", "redis"}
    assert kinds["rows"]["amount"].startswith(f"all {len(first['rows']):,} rows")
    own = {"TIDEGATE_CONFIG": str(chain.folder / "tidegate.toml"), "TIDEGATE_SPARK__CHECKPOINT_DIR": kinds["checkpoint"]["place"] + "/.."}
    elsewhere = json.loads(chain.tidegate("reset", "counts", "--rows", "--dry-run", "--format", "json", folder=tmp_path, **own).stdout)
    files = {item["kind"]: item for item in elsewhere["deletes"]}["files"]
    assert (files["place"], files["amount"]) == (str(chain.folder / "out"), kinds["files"]["amount"])
    refused = chain.tidegate("topic", "delete", f"{chain.topic}-counts", "--yes")
    assert refused.returncode == 3
    assert "example: tidegate reset counts" in refused.stderr
    assert chain.made()["rows"] == first["rows"], "nothing has gone yet"

    # Of the ingest first, as its reader then refuses the new topic until it is reset too.
    done = chain.tidegate("reset", "events", "--yes")
    assert done.returncode == 0, done.stderr
    assert "will refuse the new topic: reset its output too" in done.stdout
    chain.space.start("ingest", "events", "--until-end").finish()
    assert error_code(chain.space.start("query", "both.sql")) in ("TG-TOPIC-RECREATED", "TG-TOPIC-ENDED")
    done = chain.tidegate("reset", "all_of_them", "--rows", "--yes")
    assert done.returncode == 0, done.stderr
    assert not list((chain.folder / ".tidegate" / "checkpoints").glob("query-*"))
    assert not exists(chain.stack.bootstrap, f"{chain.topic}-all")
    again = chain.tidegate("reset", "counts", "--rows", "--yes")
    assert (again.returncode, again.stdout) == (0, "query counts has made nothing that is still there\n")
    assert [path.name for path in (chain.folder / "out").iterdir()] == ["notes.txt"]
    (chain.folder / "out" / "notes.txt").unlink()
    chain.space.start("query", "both.sql").finish()
    assert chain.made() == first


def test_a_reset_that_is_killed_anywhere_is_finished_by_the_same_command(chain: Chain, tmp_path: Path) -> None:
    """Killed at one point after the other, each time a step further: until it is done no start goes on with the half that is left."""
    first = chain.made()
    for point in RESET_POINTS:
        marker = tmp_path / point
        reset = chain.space.start("reset", "counts", "--rows", "--yes", **{VARIABLE: f"{point}:1:{marker}"})
        reset.until(marker.exists, point)
        reset.kill()
        assert error_code(chain.space.start("query", "both.sql")) == "TG-RESET-UNFINISHED"
    done = chain.tidegate("reset", "counts", "--rows", "--yes")
    assert done.returncode == 0, done.stderr
    assert "an earlier reset is unfinished" in done.stdout
    chain.space.start("query", "both.sql").finish()
    assert chain.made() == first


def test_topics_are_listed_and_described_with_what_they_are(chain: Chain) -> None:
    """By the configuration; a topic of others is not of it."""
    other = create(chain.stack.bootstrap, fresh("other"), 1)
    lines = [json.loads(line) for line in chain.tidegate("topic", "list", "--format", "json").stdout.splitlines()]
    roles = {line["topic"]: (line["partitions"], line["records"], line["roles"]) for line in lines}
    assert roles[chain.topic] == (2, 300, ["raw topic of events"])
    assert roles[f"{chain.topic}.ordered"][2] == ["ordered topic of events"]
    assert roles[f"{chain.topic}-counts"][2] == ["results of counts"]
    assert roles[other] == (1, 0, [])
    assert f"{other} " in chain.tidegate("topic", "list").stdout
    told = json.loads(chain.tidegate("topic", "describe", chain.topic, "--format", "json").stdout)
    assert told["config"]["message.timestamp.type"] == "CreateTime"
    assert sum(place["end"] - place["start"] for place in told["partitions"]) == 300
    assert "raw topic of events" in chain.tidegate("topic", "describe", chain.topic).stdout
    assert chain.tidegate("topic", "describe", "none-such").returncode == 3
    assert chain.tidegate("topic", "list", "x").returncode == 2
    assert chain.tidegate("topic", "delete").returncode == 2
    assert chain.tidegate("topic", "delete", other, "--yes").returncode == 0


def test_a_job_that_runs_is_not_reset_and_its_raw_topic_not_deleted(chain: Chain, stack: SharedStack) -> None:
    """Neither while it is seen in Redis, nor while its process has the checkpoint; afterwards both go."""
    assert chain.tidegate("reset", "events", "--yes").returncode == 0
    ingest = chain.space.start("ingest", "events").once_started()
    ingest.until(lambda: ingest.batches > 0, "a batch")
    refused = chain.tidegate("reset", "events", "--yes", "--format", "json")
    error = json.loads(refused.stderr.splitlines()[-1])["error"]
    assert (error["code"], refused.returncode) == ("TG-RESET-RUNNING", 3)
    kept = chain.tidegate("topic", "delete", chain.topic, "--yes")
    assert ("TG-RESET-RUNNING" in kept.stderr, kept.returncode) == (True, 3)
    ingest.stop()
    deleted = json.loads(chain.tidegate("topic", "delete", chain.topic, "--yes", "--format", "json").stdout)
    assert (deleted["records"], deleted["deleted"]) == (300, True)
    assert deleted["redis"], "what the journal knew of it goes too"
    assert not exists(stack.bootstrap, chain.topic)
