"""The history of sinks, of ``tidegate sink`` and beside a query: ``tidegate status --history`` tells what became of each run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.postgres_server import PostgresServer
from support.stack.commands import run_command
from support.stack.jobs import Workspace, error_code, workspace
from support.stack.servers import SharedStack
from support.stack.topics import fresh
from support.stores.result_topic import ResultTopic

pytestmark = pytest.mark.integration
SECRET = "sesame-17"


def test_runs_of_sinks_are_told(tmp_path: Path, stack: SharedStack, postgres: PostgresServer) -> None:
    """A run beside the query, one that is killed, one with other settings, one that is refused; no password is told."""
    topic, output = fresh("results"), fresh("doubled").replace("-", "_")
    url = postgres.url()
    tables = f"""
[outputs.results]
topic = "{topic}"

[outputs.{output}]
topic = "{topic}.doubled"
sink_in_job = true

[outputs.{output}.postgres]
url = "{url}"
table = "{output}"
"""
    source = ResultTopic({"bootstrap.servers": stack.bootstrap}, topic, partitions=1)
    source.write(0, 0, 20, is_final=False)

    def history(space: Workspace) -> list[tuple[str, str]]:
        servers = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        done = run_command(space.folder, "status", output, "--history", "--format", "json", environment=os.environ | servers)
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert SECRET not in done.stdout
        own = [each for each in reversed(told) if each["job"] == f"sink {output}"]
        # A quick sink says that it has caught up before the next look.
        return [(each["what"], each["more"]) for each in own if each["what"] != "caught up"]

    with workspace(tmp_path / "job", stack, tables) as space:
        space.script("doubled.sql", f"SELECT CAST(number AS bigint) AS number INTO {output} FROM results")
        assert error_code(space.start("sink", output, "--query", "doubled.sql", "--until-end")) == "TG-TOPIC-MISSING"
        query = space.start("query", "doubled.sql")
        query.until(lambda: history(space)[-1][0] == "started", "the start of the sink beside the query")
        query.stop()
        assert [what for what, _ in history(space)] == ["refused", "started", "stopped"]
        assert history(space)[0][1].startswith("TG-TOPIC-MISSING")
        sink = space.start("sink", output, "--query", "doubled.sql")
        sink.until(lambda: history(space)[-1][0] == "started", "its start")
        sink.kill()
        config = space.folder / "tidegate.toml"
        (secret := tmp_path / "secret").write_text(SECRET)
        secret.chmod(0o600)
        table = f'table = "{output}"\n'
        config.write_text(config.read_text().replace(table, f'{table}batch_rows = 77\npassword = "file:{secret}"\n'))
        space.start("sink", output, "--query", "doubled.sql", "--until-end").finish()
        told = history(space)
    assert [what for what, _ in told[3:]] == ["started", "killed", "settings changed", "started", "stopped"]
    assert told[5][1] == "postgres.batch_rows: (unset) -> 77"
