"""Tasks run in the process that ran them last, whichever Spark chooses: real processes, with the beginning of Spark's messages."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.util import PythonEvalType
from support import spark_tasks
from support.chance import dice_of
from support.repository import ROOT
from support.spark_tasks import IDLE_VARIABLE, STATEFUL, init_message

from tidegate.platform.spark.privates import SOCKETS_VARIABLE

_ENDS_WITHIN_S = 10.0


class Spark:
    """Plays Spark over the connections of some processes, which are numbered in the order in which they were forked."""

    def __init__(self, folder: Path, count: int, idle_s: float = 60) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        self.connections = [own for own, _ in pairs]
        for own in self.connections:
            own.settimeout(30)
        numbers = [other.fileno() for _, other in pairs]
        self._daemon = subprocess.Popen(
            [sys.executable, spark_tasks.__file__, *map(str, numbers)],
            stdin=subprocess.PIPE,
            pass_fds=numbers,
            env=os.environ | {SOCKETS_VARIABLE: str(folder), IDLE_VARIABLE: str(idle_s), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        )
        for _, other in pairs:
            other.close()

    def begin(self, chosen: int, query: str | None, partition: int, kind: int = STATEFUL, **asked: Any) -> None:
        """Give a task to a process."""
        self.connections[chosen].sendall(init_message(query, partition, kind, json.dumps(asked).encode()))

    def end(self, chosen: int) -> dict[str, int]:
        """Return what the task says at its end; empty if the process has ended."""
        line = b""
        while not line.endswith(b"\n") and (more := self.connections[chosen].recv(100)):
            line += more
        return json.loads(line) if line else {}

    def run(self, chosen: int, query: str | None, partition: int, kind: int = STATEFUL) -> int:
        """Have a process run a task; return the number of the process that has."""
        self.begin(chosen, query, partition, kind)
        return self.end(chosen)["pid"]

    def chosen(self, chosen: int) -> int:
        """Return the number of a process that Spark may choose: it runs tasks of other kinds itself."""
        return self.run(chosen, None, 0)

    def stop(self) -> None:
        """End all."""
        for own in self.connections:
            own.close()
        assert self._daemon.stdin is not None
        self._daemon.stdin.close()
        self._daemon.wait(_ENDS_WITHIN_S)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder, whose name is short, as that of a socket must be."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def spark(folder: Path) -> Iterator[Spark]:
    """Three processes."""
    played = Spark(folder, 3)
    yield played
    played.stop()


def until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    deadline_s = time.monotonic() + _ENDS_WITHIN_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def until_there(file: Path) -> None:
    """Wait for a file."""
    deadline_s = time.monotonic() + _ENDS_WITHIN_S
    while not file.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_whichever_process_is_chosen_a_task_runs_at_home(spark: Spark) -> None:
    """Also if two are chosen at one moment. A home is a child of the process that Spark's are forked from."""
    homes = [spark.run(0, "query", 0), spark.run(1, "query", 1)]
    assert len({*homes, *map(spark.chosen, range(3))}) == 5
    assert {psutil.Process(home).ppid() for home in homes} == {psutil.Process(spark.chosen(0)).ppid()}
    dice = dice_of("chosen processes")
    for count in range(2, 60):
        chosen = dice.sample(range(3), 2)
        for partition in dice.sample(range(2), 2):
            spark.begin(chosen[partition], "query", partition)
        found = [spark.end(chosen[partition]) for partition in range(2)]
        assert found == [{"pid": home, "count": count} for home in homes]


def test_tasks_of_other_queries_and_kinds_have_other_homes(spark: Spark) -> None:
    """A task that is none of a stateful stage runs where Spark has chosen."""
    home, other = spark.run(0, "query", 0), spark.run(1, "other", 0)
    assert home != other
    chosen = spark.chosen(2)
    assert spark.run(2, "query", 0, PythonEvalType.SQL_MAP_ARROW_ITER_UDF) == chosen
    assert spark.run(2, "query", 0) == home
    assert spark.run(2, "other", 0) == other


def test_no_task_waits_for_that_of_another_query(spark: Spark, tmp_path: Path) -> None:
    """Though each is given to the process whose first task was the other."""
    homes = spark.run(0, "query", 0), spark.run(1, "other", 0)
    spark.begin(1, "query", 0, began=str(tmp_path / "began"), sleep_s=60)
    until_there(tmp_path / "began")
    assert spark.run(0, "other", 0) == homes[1]
    assert spark.run(2, "other", 0) == homes[1]
    os.kill(homes[0], signal.SIGKILL)


def test_a_task_whose_home_is_busy_has_a_new_one(spark: Spark, tmp_path: Path) -> None:
    """So the twin of a task does not wait for it."""
    home = spark.run(0, "query", 0)
    spark.begin(0, "query", 0, began=str(tmp_path / "began"), sleep_s=4)
    until_there(tmp_path / "began")
    twin = spark.run(1, "query", 0)
    assert twin != home
    assert spark.end(0)["pid"] == home
    assert spark.run(2, "query", 0) == twin


@pytest.mark.parametrize("is_home_killed", [True, False])
def test_spark_sees_the_end_if_one_of_both_is_killed_within_a_task(spark: Spark, tmp_path: Path, is_home_killed: bool) -> None:
    """By the end of the connection that it has given the task to; it kills a task by killing the process that it has chosen."""
    chosen, home = spark.chosen(0), spark.run(1, "query", 1)
    spark.begin(0, "query", 1, began=str(tmp_path / "began"), sleep_s=60)
    until_there(tmp_path / "began")
    os.kill(home if is_home_killed else chosen, signal.SIGKILL)
    assert spark.end(0) == {}
    until_gone(home)
    until_gone(chosen)


def test_a_home_stays_if_spark_kills_a_process_that_has_no_task(spark: Spark) -> None:
    """As it does with those that it has not needed for a minute."""
    home = spark.run(0, "query", 0)
    os.kill(spark.chosen(0), signal.SIGKILL)
    assert spark.end(0) == {}
    assert spark.run(1, "query", 0) == home


def test_a_home_without_tasks_ends(folder: Path) -> None:
    """Of queries that have ended nothing stays."""
    played = Spark(folder, 1, idle_s=0.2)
    home = played.run(0, "query", 0)
    until_gone(home)
    assert played.run(0, "query", 0) != home
    played.stop()


def test_a_home_whose_task_fails_ends(spark: Spark) -> None:
    """What it has in memory cannot be relied on. Spark hears of it as if the chosen process had run the task."""
    chosen, home = spark.chosen(0), spark.run(1, "query", 1)
    spark.begin(0, "query", 1, code=1)
    assert spark.end(0)["pid"] == home
    until_gone(home)
    until_gone(chosen)
    assert spark.run(2, "query", 1) != home


def test_a_home_that_does_not_answer_is_not_waited_for_long(spark: Spark) -> None:
    """It is held still while it is idle."""
    home = spark.run(0, "query", 0)
    os.kill(home, signal.SIGSTOP)
    assert spark.run(1, "query", 0) != home
    os.kill(home, signal.SIGCONT)


def test_in_a_folder_of_others_tasks_run_where_they_are_given(tmp_path: Path) -> None:
    """There anybody could send one."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    played = Spark(folder, 2)
    assert [played.run(chosen, "query", 0) for chosen in range(2)] == [played.chosen(chosen) for chosen in range(2)]
    assert list(folder.iterdir()) == []
    played.stop()
