"""Others on the same machine: they knock at every port of a job, read command lines, and look into folders; and it is all in vain."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.stack.drawn_logs import Raw, draw, expected, logs_of
from support.stack.jobs import Job, workspace
from support.stack.topics import check_promises, create, fresh, produce, read_ordered

from ordering.policies import Action, Policies
from ordering.ticks import SECOND_US
from tidegate.platform.spark.options import archive_path

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

PARTITIONS = 2
POLICIES = Policies(20 * SECOND_US, 30 * SECOND_US, Action.ADJUST, 3 * SECOND_US, Action.DROP)
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
early = "20s"
late = "30s"
late_action = "adjust"
reorder = "3s"
out_of_order_action = "drop"
"""
HELLOS = (
    # HTTP, TLS and Redis: read as lengths, the first four bytes of each are more than a small heap.
    b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"*1\r\n$4\r\nPING\r\n",
    # What py4j's two servers would do without a password: call an object of the driver, and leave the JVM.
    b"c\np0\n__setattr__\nscall\nsgone\ne\n",
    b"c\nz:java.lang.System\nexit\ni1\ne\n",
    b"s\n",
    # And with a wrong one.
    b"A\nwrong\ne\nc\np0\n__setattr__\nscall\nsgone\ne\n",
)
REFUSALS = (b"!xsAuthentication error", b"!zspy4j.Py4JException: Unknown command received")
"""What a port may answer, if anything."""
KNOCKS = 35
"""So often at each port: some are open for a moment only."""
_PAUSE_S = 0.1
"""Between two looks at all processes and ports: the shortest-lived process, the launcher, lives five times as long."""
CANARY = "canary-in-a-setting"
CONF = f"""
[spark.conf]
"spark.innocent" = "{CANARY}-1"
"spark.hadoop.fs.azure.account.key.datafile" = "env:ACCOUNT_KEY"
"spark.executorEnv.INNOCENT" = "{CANARY}-2"
"spark.driver.extraJavaOptions" = "-Dinnocent={CANARY}-3"
"""


class Neighbours:
    """
    What others on the machine see of a job, and what its ports answer them.

    Attributes:
        knocked: How often they knocked at each port.
        answers: What came back from a port.
        listeners: The programs that listened.
        command_lines: The command lines of all processes.
        open_files: What lies outside of the checkpoint and others may read or enter.
    """

    def __init__(self, job: Job, folders: tuple[Path, ...]) -> None:
        self._session, self._folders = job.pid, folders
        self.knocked: Counter[int] = Counter()
        self.answers: set[bytes] = set()
        self.listeners: set[str] = set()
        self.command_lines: set[str] = set()
        self.open_files: set[Path] = set()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in (self._knock, self._look)]

    def __enter__(self) -> Neighbours:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._done.wait(_PAUSE_S):
            work()

    def _processes(self) -> Iterator[psutil.Process]:
        """Yield the job's processes; others are not looked at, which would cost more than the job."""
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
                if os.getsid(pid) == self._session:
                    yield psutil.Process(pid)

    def _knock(self) -> None:
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
                for connection in process.net_connections("tcp"):
                    port = connection.laddr.port
                    if connection.status == psutil.CONN_LISTEN and self.knocked[port] < KNOCKS:
                        self.listeners.add(process.name())
                        self._say_hello(port, HELLOS[self.knocked[port] % len(HELLOS)])
                        self.knocked[port] += 1

    def _say_hello(self, port: int, hello: bytes) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2) as stranger:
            stranger.sendall(hello)
            self.answers.add(stranger.recv(4096))

    def _look(self) -> None:
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
                self.command_lines.add(" ".join(process.cmdline()))
        for folder in self._folders:
            # What lies in a folder that others cannot enter is safe.
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if path.lstat().st_mode & 0o077:
                        self.open_files.add(path)


@dataclass(frozen=True)
class Scene:
    """
    An ingest job that was killed in its work, and one that finished it, among neighbours.

    Attributes:
        neighbours: Those of the killed job, and those of the last.
        uses_archive: Whether the first JVM read the class archive.
        changes: What the program ``chmod`` was asked for.
        scratch: Spark's folder for temporary files.
    """

    bootstrap: str
    topic: str
    raws: list[Raw]
    neighbours: tuple[Neighbours, Neighbours]
    uses_archive: bool
    changes: Path
    scratch: Path

    @property
    def command_lines(self) -> set[str]:
        """The command lines of all processes of both jobs."""
        return self.neighbours[0].command_lines | self.neighbours[1].command_lines


@pytest.fixture(scope="module")
def scene(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The JVM's folder for temporary files has a path too long for a socket, and large letters."""
    raws = draw(23, 2_000, PARTITIONS)
    topic = create(stack.bootstrap, fresh("strangers"), PARTITIONS)
    folder = tmp_path_factory.mktemp("strangers")
    scratch, temporary = folder / "scratch", folder / "Temporary" / ("x" * 100)
    scratch.mkdir()
    temporary.mkdir(parents=True)
    program, changes = folder / "chmod", folder / "changes"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{changes}"\nexec /bin/chmod "$@"\n')
    program.chmod(0o755)
    environment = {
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={temporary}",
        "ACCOUNT_KEY": f"{CANARY}-4",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    with workspace(folder / "space", stack, TABLES.format(topic=topic) + CONF) as space:
        killed = space.start_alone("ingest", "events", **environment)
        with Neighbours(killed, (scratch, temporary)) as first:
            killed.until(lambda: any(scratch.iterdir()), "Spark starts")
            produce(stack.bootstrap, topic, raws[: len(raws) // 2])
            killed.until(lambda: killed.batches > 0, "its first batch")
            (java,) = (child for child in psutil.Process(killed.pid).children(recursive=True) if child.name() == "java")
            uses_archive = str(archive_path()) in Path(f"/proc/{java.pid}/maps").read_text()
            (left,) = scratch.iterdir()
            assert any(left.iterdir()), "Spark works there"
            killed.kill()
        assert left.exists()
        produce(stack.bootstrap, topic, raws[len(raws) // 2 :])
        job = space.start_alone("ingest", "events", "--until-end", **environment)
        with Neighbours(job, (scratch, temporary)) as last:
            job.finish()
    return Scene(stack.bootstrap, topic, raws, (first, last), uses_archive, changes, scratch)


def test_strangers_neither_end_a_job_nor_change_what_it_writes(scene: Scene) -> None:
    """Law, level 1: the sequence of every channel is the oracle's, whoever connects to the job's ports meanwhile."""
    for neighbours in scene.neighbours:
        assert max(neighbours.knocked.values(), default=0) >= len(HELLOS), "the job listened nowhere: nobody could knock"
        assert neighbours.listeners == {"java"}, "the driver has no port at all"
        assert [answer for answer in neighbours.answers if not answer.startswith(REFUSALS) and answer] == []
    found = read_ordered(scene.bootstrap, f"{scene.topic}.ordered", PARTITIONS)
    assert found.events == expected(logs_of(scene.raws, PARTITIONS), POLICIES, PARTITIONS, over=False)
    check_promises(found, killed=True)


def test_no_setting_stands_on_a_command_line(scene: Scene) -> None:
    """From the start of the JVM to the end of the workers; options of a user go beside those of Tidegate."""
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in scene.command_lines)
    assert any("worker_daemon" in line for line in scene.command_lines)
    assert [line for line in scene.command_lines if CANARY in line] == []
    assert scene.uses_archive == archive_path().exists()


def test_no_file_is_open_to_others_and_none_is_left(scene: Scene) -> None:
    """A killed job's files go at the next start, and that one's with it."""
    assert [neighbours.open_files for neighbours in scene.neighbours] == [set(), set()]
    assert list(scene.scratch.iterdir()) == []


def test_the_jvm_runs_no_program_for_the_files_of_a_checkpoint(scene: Scene) -> None:
    """Hadoop would run chmod for each of them."""
    assert not scene.changes.exists()
