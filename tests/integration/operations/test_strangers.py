"""Somebody else's connection to a port of the job's own, as of a scanner, or of a scraper whose target has moved."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Job, workspace
from support.stack.topics import check_promises, create, fresh, produce, read_ordered

from ordering.policies import Action, Policies
from ordering.ticks import SECOND_US

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
HELLOS = (b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"*1\r\n$4\r\nPING\r\n")
"""HTTP, TLS and Redis: read as lengths, the first four bytes of each are more than a small heap."""
KNOCKS = 30
"""So often at each port: some are open for a moment only."""


def listening(session: int) -> set[int]:
    """The TCP ports at which the processes of a session listen."""
    ports = set()
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(connection.pid) == session:
                    ports.add(connection.laddr.port)
    return ports


@contextlib.contextmanager
def strangers(job: Job) -> Iterator[Counter[int]]:
    """Knock at every port of a job from the moment it opens; give the number of knocks at each."""
    knocked: Counter[int] = Counter()
    done = threading.Event()

    def knock() -> None:
        while not done.wait(0.005):
            for port in listening(job.pid):
                if knocked[port] < KNOCKS:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5) as stranger:
                        stranger.sendall(HELLOS[knocked[port] % len(HELLOS)])
                        knocked[port] += 1

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        yield knocked
    finally:
        done.set()
        thread.join()


def test_strangers_neither_end_a_job_nor_change_what_it_writes(stack: Stack, tmp_path: Path) -> None:
    """
    Law, level 1: the sequence of every channel is the oracle's, whoever connects to the job's ports meanwhile.

    Nor does it matter that the JVM's folder for temporary files has a path too long for a socket, and large letters.
    """
    raws = draw(23, 2_000, PARTITIONS)
    topic = create(stack.bootstrap, fresh("strangers"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        temporary = space.folder / "Temporary" / ("x" * 100)
        temporary.mkdir(parents=True)
        job = space.start_alone("ingest", "events", "--until-end", SPARK_SUBMIT_OPTS=f"-Djava.io.tmpdir={temporary}")
        with strangers(job) as knocked:
            job.finish()
    assert max(knocked.values(), default=0) >= len(HELLOS), "the job listened nowhere: nobody could knock"
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
    assert found.events == expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=False)
    check_promises(found)
