"""
Result files on an object store: the same names and bytes as in a folder, whatever is killed or cut; those of a killed query, on an object
store and in HDFS, verified there.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs
from support.cutting_proxy import CuttingProxy
from support.hdfs_server import USER, HdfsServer
from support.object_server import CREDENTIALS, ObjectServer, run_object_server
from support.stack import keyed_input
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, settings_of, workspace
from support.stack.topics import create, fresh, produce

from ordering.ticks import MINUTE_US, parse_tick
from sinks.base import SinkError
from sinks.file_places import ObjectStore, open_place
from sinks.files import FileSink

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration
EVERY = bool(os.environ.get("TIDEGATE_TEST_ALL_CASES"))

START_US = parse_tick("2001-01-01T00:00:00Z")
ROWS = [(START_US + number, b"k", b'{"n": %d}' % number) for number in range(1000)]
# Above the size from which the client uploads an object in parts.
LARGE = random.Random(1).randbytes(12 << 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A server, and credentials for it in the environment."""
    with run_object_server(tmp_path_factory.mktemp("objects") / "log") as made:
        yield made


@pytest.fixture
def bucket(server: ObjectServer) -> str:
    """A bucket of this test."""
    return server.new_bucket()


def contents(place: str) -> dict[str, bytes]:
    """Return every file of a folder or an object store."""
    opened = open_place(place)
    return {name: opened.read(name) for name in sorted(opened.names())}


@pytest.mark.parametrize(("file_format", "by_date"), [("ndjson", False), ("parquet", True)])
def test_objects_are_the_files_of_a_folder(server: ObjectServer, bucket: str, tmp_path: Path, file_format: str, by_date: bool) -> None:
    """The same names and bytes; twice written, once there; deleted, twice too, gone, and nothing else."""
    places = [server.url(f"{bucket}/deep/prefix"), str(tmp_path)]
    for place in (*places, places[0]):
        sink = FileSink(place, file_format, MINUTE_US, [("n", "bigint")], by_date=by_date)
        for partition, start_us in ((0, START_US), (3, START_US), (0, START_US + MINUTE_US)):
            sink.publish(start_us, partition, [(start_us + at_us - START_US, key, value) for at_us, key, value in ROWS])
    assert contents(places[0]) == contents(places[1])
    assert len(contents(places[0])) == 3
    for place in places:
        first, *others = sorted(contents(place))
        open_place(place).delete(first)
        open_place(place).delete(first)
        assert sorted(contents(place)) == others


_WRITER = """
import random, sys
from sinks.file_places import open_place
place, large = open_place(sys.argv[1]), random.Random(1).randbytes(12 << 20)
print("begins", flush=True)
while True:
    place.write("large", large)
"""


def test_a_killed_writer_leaves_a_whole_object_or_none(server: ObjectServer, bucket: str) -> None:
    """kill -9 at any moment of an upload: a reader sees all of an object or none of it, and the next writer needs no cleaning."""
    url = server.url(f"{bucket}/results")
    seen = {contents(url).get("large")}
    for number in range(0, 12, 3) if EVERY else (3, 9):
        with subprocess.Popen([sys.executable, "-c", _WRITER, url], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begins\n"
            deadline_s = time.monotonic() + 0.13 * number
            while time.monotonic() < deadline_s:
                seen.add(contents(url).get("large"))
                time.sleep(0.1)
            writer.kill()
        seen.add(contents(url).get("large"))
    assert seen == {None, LARGE}
    open_place(url).write("large", LARGE)
    assert contents(url) == {"large": LARGE}


@pytest.mark.parametrize("size", [100, len(LARGE)])
@pytest.mark.parametrize(("octets", "towards"), [(1, "server"), (2000, "server"), (1, "client"), (20, "client"), (150, "client")])
def test_a_lost_answer_neither_loses_nor_doubles(server: ObjectServer, bucket: str, size: int, octets: int, towards: str) -> None:
    """A line that is cut before, within and behind the upload: the file is there once, whole."""
    proxy = CuttingProxy(server.port)
    store = ObjectStore(server.url(f"{bucket}/results", proxy.port))
    store.write("first", b"first")
    proxy.cut_after(octets, towards)
    store.write("second", LARGE[:size])
    store.write("third", b"third")
    proxy.close()
    assert proxy.cuts == 1
    assert contents(server.url(f"{bucket}/results")) == {"first": b"first", "second": LARGE[:size], "third": b"third"}


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write goes on as soon as the store answers; until then the log says for what it waits, and since when."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = ObjectServer(tmp_path / "log")
    store = ObjectStore(server.url("bucket/results"))
    server.stop()

    def bring_back() -> None:
        time.sleep(8)
        server.start()
        server.make_bucket("bucket")

    returning = threading.Thread(target=bring_back)
    with capture_logs() as logs:
        returning.start()
        # The bucket is missing for a moment, and may be met so: that is refused, and ends the wait.
        was_refused = False
        while True:
            try:
                store.write("late", b"late")
                break
            except SinkError:
                was_refused = True
                time.sleep(0.1)
    returning.join()
    assert store.read("late") == b"late"
    server.stop()
    assert logs[0]["event"] == "the store does not take a file: waiting"
    assert was_refused or (logs[-1]["event"] == "the store takes files again" and logs[-1]["waited_s"] >= 1)


@pytest.mark.parametrize(("url", "reason"), [("s3://absent/results", "bucket"), ("s3://Not_A_Bucket!", "cannot")])
def test_what_no_waiting_mends_is_refused_at_once(server: ObjectServer, url: str, reason: str) -> None:
    """A bucket that is not there, a URL that is none."""
    options = server.url("x").partition("?")[2]
    with pytest.raises(SinkError, match=reason) as refused:
        open_place(f"{url}?{options}").write("name", b"content")
    assert refused.value.code == "TG-SINK-FILE"


TABLES = (
    keyed_input.TABLES
    + """
[outputs.counts]
topic = "{topic}.counts"
files = "{url}"
file_span = "1m"

[outputs.same]
topic = "{topic}.same"
files = "same"
file_span = "1m"
"""
)
KILLS = 3 if EVERY else 1
QUERY = """
SELECT k, System.Timestamp() AS w, COUNT(*) AS n, SUM(v) AS total
FROM events TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
"""


# Writers into HDFS are killed by test_hdfs.py too.
@pytest.fixture(params=["objects", pytest.param("hdfs", marks=pytest.mark.deep)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of an empty place, and what its clients take from the environment."""
    if request.param == "objects":
        url = request.getfixturevalue("server").url(f"{request.getfixturevalue('bucket')}/counts")
        yield url, CREDENTIALS
        return
    (folder := tmp_path / "hdfs").mkdir()
    with closing(HdfsServer(folder)) as hdfs, pytest.MonkeyPatch.context() as environment:
        environment.setenv("HADOOP_USER_NAME", USER)
        yield hdfs.url("lake/counts"), {"HADOOP_USER_NAME": USER}


def test_a_killed_query_publishes_each_file_once(store: tuple[str, dict[str, str]], stack: Stack, tmp_path: Path) -> None:
    """Levels 1 and 2: after kills the files are those of an undisturbed job in a folder; verify says so, and finds one changed byte."""
    topic, (url, credentials) = create(stack.bootstrap, fresh("objects"), 2), store
    produce(stack.bootstrap, topic, draw(5, 3_000, 2, bad=0.01, gaps_ms=(0, 3, 8, 54, 240)))
    with workspace(tmp_path, stack, TABLES.format(topic=topic, url=url)) as space:
        space.start("ingest", "events", "--until-end").finish()
        query = space.script("counts.sql", QUERY)
        small = settings_of(query__max_events_per_batch=500)
        for _ in range(KILLS):
            killed = space.start("query", query, "--into", "counts", *small, **credentials)
            killed.until(partial(_has_batch, killed), "a batch")
            killed.kill()
        space.start("query", query, "--into", "counts", **credentials).finish()
        space.start("query", query, "--into", "same").finish()
        assert contents(url) == contents(str(tmp_path / "same"))
        assert len(contents(url)) > 3
        verify = ("verify", "counts", "--query", f"counts={query}")
        assert space.start(*verify, **credentials).finish()["equal"]
        _change_one_byte(url)
        job = space.start(*verify, **credentials)
        assert job.wait() != 0
        assert not job.last["equal"]
        assert url.partition("?")[0] in json.dumps(job.last)


def _has_batch(job: Job) -> bool:
    return job.batches > 0


def _change_one_byte(url: str) -> None:
    name, content = sorted(contents(url).items())[1]
    open_place(url).write(name, content.replace(b'"n":', b'"N":', 1))
