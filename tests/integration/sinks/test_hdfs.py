"""Result files in a real HDFS: the same names and bytes as in a folder, whatever is killed or cut."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs
from support.cutting_proxy import CuttingProxy
from support.hdfs_server import USER, HdfsServer

from ordering.ticks import MINUTE_US, parse_tick
from sinks.base import SinkError
from sinks.file_places import open_place
from sinks.files import FileSink

pytestmark = pytest.mark.heavy
START_US = parse_tick("2001-01-01T00:00:00Z")
ROWS = [(START_US + number, b"k", b'{"n": %d}' % number) for number in range(1000)]
LARGE = random.Random(1).randbytes(4 << 20)
_number = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """A server, and its user in the environment."""
    with closing(HdfsServer(tmp_path_factory.mktemp("hdfs"))) as made, pytest.MonkeyPatch.context() as environment:
        environment.setenv("HADOOP_USER_NAME", USER)
        yield made


@pytest.fixture
def url(server: HdfsServer) -> str:
    """A folder that nobody else has."""
    return server.url(f"lake {next(_number)}/results")


def contents(place: str) -> dict[str, bytes]:
    """Return every finished file of a place."""
    opened = open_place(place)
    return {name: opened.read(name) for name in sorted(opened.names())}


def unfinished(url: str) -> list[str]:
    """Return what lies in a folder under names with a dot."""
    listed = httpx2.get(url.replace("webhdfs://", "http://").replace("/lake", "/webhdfs/v1/lake"), params={"op": "LISTSTATUS"}).json()
    return [status["pathSuffix"] for status in listed["FileStatuses"]["FileStatus"] if status["pathSuffix"].startswith(".")]


@pytest.mark.parametrize(("file_format", "by_date"), [("ndjson", False), ("parquet", True)])
def test_files_are_those_of_a_folder(url: str, tmp_path: Path, file_format: str, by_date: bool) -> None:
    """The same names and bytes; twice written, once there; deleted, twice too, gone, and nothing else."""
    for place in (url, str(tmp_path), url):
        sink = FileSink(place, file_format, MINUTE_US, [("n", "bigint")], by_date=by_date)
        for partition, start_us in ((0, START_US), (3, START_US), (0, START_US + MINUTE_US)):
            sink.publish(start_us, partition, [(start_us + at_us - START_US, key, value) for at_us, key, value in ROWS])
    assert contents(url) == contents(str(tmp_path))
    first, *others = sorted(contents(url))
    assert len(others) == 2
    open_place(url).delete(first)
    open_place(url).delete(first)
    assert sorted(contents(url)) == others


def _write_for_ever(url: str, has_begun: Event) -> None:
    place = open_place(url)
    has_begun.set()
    while True:
        place.write("large", LARGE)


@pytest.mark.deep
def test_killed_writers_leave_a_whole_file_or_none(url: str, record_property: Callable[[str, object], None]) -> None:
    """Two at once, one killed at any moment: a reader sees all of a file or none of it; the next writer clears what they left."""
    seen, context = set(), multiprocessing.get_context("spawn")
    for number in range(8):
        begun = [context.Event() for _ in range(2)]
        writers = [context.Process(target=_write_for_ever, args=(url, has_begun)) for has_begun in begun]
        for writer in writers:
            writer.start()
        assert all(has_begun.wait(60) for has_begun in begun)
        deadline_s = time.monotonic() + 0.5 + 0.13 * number
        while time.monotonic() < deadline_s:
            seen.add(contents(url).get("large"))
        for writer in writers:
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
        seen.add(contents(url).get("large"))
    record_property("kills", 16)
    assert seen - {None} == {LARGE}
    open_place(url).write("large", LARGE)
    assert contents(url) == {"large": LARGE}
    assert unfinished(url) == []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("octets", "towards"), [(1, "server"), (300, "server"), (600, "server"), (1, "client"), (800, "client"), (1500, "client")]
)
def test_a_lost_answer_neither_loses_nor_doubles(server: HdfsServer, url: str, octets: int, towards: str) -> None:
    """The line to the NameNode is cut before, between and behind the steps: the file is there once, whole."""
    proxy = CuttingProxy(server.port)
    place = open_place(url.replace(str(server.port), str(proxy.port)))
    place.write("first", b"first")
    proxy.cut_after(octets, towards)
    place.write("second", LARGE)
    place.write("third", b"third")
    proxy.close()
    assert proxy.cuts == 1
    assert contents(url) == {"first": b"first", "second": LARGE, "third": b"third"}
    assert unfinished(url) == []


@pytest.mark.deep
@pytest.mark.parametrize("killed", ["namenode", "datanode"])
def test_a_server_that_is_away_is_waited_for(server: HdfsServer, url: str, killed: str) -> None:
    """What was written stays, the write goes on as soon as the server is back; until then the log says for what it waits."""
    place = open_place(url)
    place.write("first", LARGE)
    server.kill(killed)

    def bring_back() -> None:
        time.sleep(4)
        server.start(killed)

    returning = threading.Thread(target=bring_back)
    with capture_logs() as logs:
        returning.start()
        place.write("late", b"late")
    returning.join()
    server.wait()
    assert contents(url) == {"first": LARGE, "late": b"late"}
    assert logs[0]["event"] == "the store does not take a file: waiting"


def test_who_may_not_write_is_told_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of HDFS."""
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    with pytest.raises(SinkError, match="Permission denied: user=stranger") as refused:
        open_place(url).write("name", b"content")
    assert refused.value.code == "TG-SINK-FILE"
    assert contents(url) == {}
    with pytest.raises(FileNotFoundError):
        open_place(url).read("name")


def test_what_is_no_hdfs_is_told_at_once() -> None:
    """Some other server answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *arguments: object) -> None:
            """Be silent."""

    other = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    with pytest.raises(SinkError, match="this is not WebHDFS"):
        open_place(f"webhdfs://127.0.0.1:{other.server_port}/x").write("name", b"content")
    other.shutdown()
    other.server_close()
