"""An object store with the interface of S3: moto's server, a process of its own that can be stopped and started again."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from tidegate.platform.stack.embedded import free_port

REGION = "eu-central-1"
# What the clients of S3 take from the environment; the server lets everybody in.
# Without the last one the client sends a checksum behind each object, which moto takes for a part of an object that came unsigned.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "reader",
    "AWS_SECRET_ACCESS_KEY": "of-tests",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
}
_START_S = 60.0
# Moto's own command answers several requests at a time, and may then take the form of one for that of another.
_ONE_AT_A_TIME = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


class ObjectServer:
    """
    Args:
        log: File for what the server says.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Start it, without any object: it keeps all of them in memory. Return once it answers."""
        command = [sys.executable, "-c", _ONE_AT_A_TIME, str(self.port)]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline_s = time.monotonic() + _START_S
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline_s, f"no answer within {_START_S:g} s: {self._log.read_text()}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End it; its objects are gone."""
        self._process.kill()
        self._process.wait()

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        body = f"<CreateBucketConfiguration><LocationConstraint>{REGION}</LocationConstraint></CreateBucketConfiguration>"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{name}", data=body.encode(), method="PUT")
        urllib.request.urlopen(request).close()

    def new_bucket(self) -> str:
        """Make an empty bucket with a name of its own."""
        name = f"bucket-{uuid.uuid4().hex}"
        self.make_bucket(name)
        return name

    def put(self, place: str, content: bytes) -> None:
        """Put an object at bucket and name; needs :data:`CREDENTIALS` in the environment, as it stays theirs."""
        files, path = fs.FileSystem.from_uri(self.url(place))
        with files.open_output_stream(path) as stream:
            stream.write(content)

    def names(self, place: str) -> list[str]:
        """Return the names of the objects below bucket and prefix, relative to these; needs no credentials."""
        files = self._files()
        found = files.get_file_info(fs.FileSelector(place, allow_not_found=True, recursive=True))
        return [info.path.removeprefix(f"{place}/") for info in found if info.type is fs.FileType.File]

    def get(self, place: str) -> bytes:
        """Return an object; needs no credentials."""
        with self._files().open_input_stream(place) as stream:
            return bytes(stream.read())

    def _files(self) -> fs.S3FileSystem:
        keys = {"access_key": CREDENTIALS["AWS_ACCESS_KEY_ID"], "secret_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
        return fs.S3FileSystem(**keys, region=REGION, scheme="http", endpoint_override=f"127.0.0.1:{self.port}")

    def delete(self, place: str) -> None:
        """Take an object away."""
        files, path = fs.FileSystem.from_uri(self.url(place))
        files.delete_file(path)

    def url(self, path: str, port: int | None = None) -> str:
        """Return the URL of a bucket and prefix, as ``files`` of an output takes it; *port* is one that leads to the server."""
        return f"s3://{path}?endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region={REGION}"

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/moto-api/data.json", timeout=1).close()
        except (urllib.error.URLError, OSError):
            return False
        return True


@contextmanager
def run_object_server(log: Path) -> Iterator[ObjectServer]:
    """Run a server; meanwhile credentials for it are in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server = ObjectServer(log)
        try:
            yield server
        finally:
            server.stop()
