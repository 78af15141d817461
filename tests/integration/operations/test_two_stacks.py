"""Two stacks on one machine: a command that is led to the other one says so, and deletes nothing there; each fix that it prints works."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.cutting_proxy import CuttingProxy
from support.stack.commands import run_command
from support.stack.topics import create, exists, fresh

from tidegate.platform.stack.embedded import EmbeddedStack

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """The stack of the folder in which commands are run, as ``tidegate up`` starts it; the other stack is that of all tests."""
    with EmbeddedStack(tmp_path_factory.mktemp("home") / ".tidegate" / "stack", heap="256m", with_password=True) as running:
        yield running
        running.stop()


class Folder:
    """A folder with a stack and a raw topic that both stacks have."""

    def __init__(self, own: EmbeddedStack, other: Stack) -> None:
        self.own, self.home = own, own.directory.parents[1]
        self.topic = fresh("twice")
        create(other.bootstrap, self.topic, 1)
        # An ordered topic that an ingest has made, with its checkpoint.
        create(other.bootstrap, f"{self.topic}.ordered", 1)
        (self.home / "tidegate.toml").write_text(TABLES.format(topic=self.topic))
        self.checkpoint = self.home / ".tidegate" / "checkpoints" / f"ingest-{self.topic}.ordered"
        self.checkpoint.mkdir(parents=True)
        self.to_other = {"TIDEGATE_KAFKA__BOOTSTRAP": other.bootstrap, "TIDEGATE_REDIS__URL": other.redis_url}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        return run_command(self.home, *arguments, environment=inherited | environment)

    def refusal(self, *arguments: str, **environment: str) -> dict[str, Any]:
        """Return the error by which a command is refused because another stack answers."""
        refused = self.run(*arguments, "--format", "json", **environment)
        error: dict[str, Any] = json.loads(refused.stderr.splitlines()[-1])["error"]
        assert (error["code"], refused.returncode) == ("TG-STACK-OTHER", 3), refused.stderr
        return error

    def follow(self, error: dict[str, Any]) -> None:
        """Run the command that an error gives as its example."""
        program, *arguments = error["example"].split()
        assert program == "tidegate"
        assert self.run(*arguments).returncode == 0


@pytest.fixture
def folder(own: EmbeddedStack, stack: Stack) -> Folder:
    """Its stack runs, and has the topic too."""
    made = Folder(own, stack)
    own.start()
    create(own.bootstrap, made.topic, 1)
    return made


def test_a_command_that_reads_another_stack_says_so_once(folder: Folder) -> None:
    """It goes on: the setting may be meant. On the folder's own stack, by whatever name of its address, nothing is said."""
    told = folder.run("topic", "describe", folder.topic, **folder.to_other)
    assert told.returncode == 0
    assert told.stderr.count("TG-STACK-OTHER") == 1
    assert folder.own.id in told.stderr
    port = folder.own.bootstrap.rpartition(":")[2]
    for names in ({}, {"TIDEGATE_KAFKA__BOOTSTRAP": f"localhost:{port}"}):
        quiet = folder.run("topic", "describe", folder.topic, **names)
        assert (quiet.returncode, quiet.stderr) == (0, "")


def test_a_topic_of_another_stack_is_not_deleted_and_without_the_setting_that_of_the_folder_is(folder: Folder, stack: Stack) -> None:
    """The first fix: leave out ``kafka.bootstrap``."""
    error = folder.refusal("topic", "delete", folder.topic, "--yes", **folder.to_other)
    assert "leave out kafka.bootstrap" in error["fix"]
    assert exists(stack.bootstrap, folder.topic)
    assert folder.run("topic", "delete", folder.topic, "--yes").returncode == 0
    assert not exists(folder.own.bootstrap, folder.topic)
    assert exists(stack.bootstrap, folder.topic)


def test_a_stack_that_has_taken_the_port_of_this_one_loses_nothing(folder: Folder, stack: Stack) -> None:
    """The third fix: ``tidegate up`` starts the folder's Kafka at another port. Its Valkey lives on, so the stack counts as running."""
    taken = CuttingProxy(int(stack.bootstrap.rpartition(":")[2]))
    folder.own.stop_kafka(grace_s=0)
    folder.own._update({"kafka_port": taken.port})
    error = folder.refusal("topic", "delete", folder.topic, "--yes")
    assert exists(stack.bootstrap, folder.topic)
    folder.follow(error)
    assert folder.own.bootstrap != f"127.0.0.1:{taken.port}"
    assert folder.run("topic", "delete", folder.topic, "--yes").returncode == 0
    assert not exists(folder.own.bootstrap, folder.topic)
    assert exists(stack.bootstrap, folder.topic)
    taken.close()


def test_a_job_is_not_reset_on_another_stack_until_that_of_the_folder_is_down(folder: Folder, stack: Stack) -> None:
    """The second fix: ``tidegate down``, if the other one is meant. What is only listed is refused as well, since it would not go."""
    for flag in ("--dry-run", "--yes"):
        error = folder.refusal("reset", "events", flag, **folder.to_other)
    assert exists(stack.bootstrap, f"{folder.topic}.ordered")
    assert folder.checkpoint.is_dir()
    # Its Valkey is what runs of it: Kafka would take half a minute to end.
    folder.own.stop_kafka(grace_s=0)
    folder.follow(error)
    done = folder.run("reset", "events", "--yes", **folder.to_other)
    assert done.returncode == 0, done.stderr
    assert "TG-STACK-OTHER" not in done.stderr
    assert not exists(stack.bootstrap, f"{folder.topic}.ordered")
    assert not folder.checkpoint.exists()


def test_wiping_a_folder_asks_no_broker(own: EmbeddedStack, stack: Stack) -> None:
    """``down --wipe`` ends the processes of the folder and deletes its files, wherever settings lead: a stranger's data cannot be meant."""
    folder = Folder(own, stack)
    # Its Valkey is what runs of it: Kafka would take half a minute to end.
    own.stop_kafka(grace_s=0)
    own.start_redis()
    wiped = folder.run("down", "--wipe", **folder.to_other)
    assert wiped.returncode == 0, wiped.stderr
    assert not own.directory.exists()
    assert exists(stack.bootstrap, folder.topic)
    assert exists(stack.bootstrap, f"{folder.topic}.ordered")
