"""The metrics port holds a bounded number of connections for a bounded time, whoever connects to it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.metrics.server import CONNECTIONS_MAX, REQUEST_S
from tidegate.platform.stack.embedded import free_port

HALF = b"GET /metrics HTTP/1.1\r\nHost: here\r\n"


@pytest.fixture
def port() -> int:
    """The port of a job's metrics."""
    chosen = free_port()
    Metrics(chosen)
    return chosen


def connect(port: int, *, sends: bytes) -> socket.socket:
    """A client that has sent something."""
    client = socket.create_connection(("127.0.0.1", port), timeout=3 * REQUEST_S)
    with suppress(OSError):
        client.sendall(sends)
    return client


def read_all(client: socket.socket) -> bytes:
    """What a client gets until the connection ends."""

    def pieces() -> Iterator[bytes]:
        with suppress(ConnectionError):
            while piece := client.recv(65536):
                yield piece

    return b"".join(pieces())


def test_hundreds_of_half_requests_take_sixteen_connections_for_five_seconds(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    """No thread and no descriptor beyond that; afterwards metrics are answered as before; nothing is printed."""
    me, threads = psutil.Process(), threading.active_count()
    with ExitStack() as clients:
        opened = [clients.enter_context(connect(port, sends=HALF)) for _ in range(300)]
        time.sleep(1)
        # Both ends of each connection are this process's.
        served = sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in me.net_connections("tcp"))
        assert threading.active_count() - threads <= CONNECTIONS_MAX
        assert served <= 2 * CONNECTIONS_MAX
        started_s = time.monotonic()
        assert {read_all(client) for client in opened} == {b""}
        assert time.monotonic() - started_s < 3 * REQUEST_S
    with connect(port, sends=HALF + b"\r\n") as client:
        assert b"tidegate_build_info" in read_all(client)
    assert capfd.readouterr().err == ""


def test_a_request_that_drips_is_cut_off_too(port: int) -> None:
    """Each byte comes in time, the whole does not."""
    with connect(port, sends=b"GET /live HTTP/1.1\r\n") as client:
        started_s = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - started_s < 4 * REQUEST_S:
                client.sendall(b"x")
                time.sleep(0.2)
        assert REQUEST_S - 1 < time.monotonic() - started_s < 3 * REQUEST_S


def test_an_answer_that_nobody_takes_holds_its_connection_for_seconds_only(port: int) -> None:
    """Sixteen clients that ask again and again without reading; then another is answered."""
    with ExitStack() as clients:
        for _ in range(CONNECTIONS_MAX):
            clients.enter_context(connect(port, sends=(HALF + b"\r\n") * 2_000))
        deadline_s = time.monotonic() + 6 * REQUEST_S
        while True:
            with connect(port, sends=b"GET /live HTTP/1.1\r\n\r\n") as client:
                if b"live" in read_all(client):
                    return
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
