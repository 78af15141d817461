"""
A real REST catalog of Iceberg for tests: the server that Iceberg tests its own clients with, a process that may be killed.

Its jars come from Maven Central by their checksums, as those of the embedded Kafka do; what they stand on comes with PySpark.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyspark

from tidegate.platform.stack.embedded import free_port
from tidegate.platform.stack.jars import cache_folder, find_java, read_pins, resolve

_PINS = Path(__file__).with_name("iceberg_rest_jars.sha256")
_OF_PYSPARK = ("avro-1", "hadoop-client", "jackson-", "jakarta.servlet", "log4j", "slf4j-api")
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_S = 60.0


class IcebergRestServer:
    """A REST catalog whose tables, and the file ``catalog.db`` of SQLite that names them, are in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        jars = [path for path in (Path(pyspark.__file__).parent / "jars").iterdir() if path.name.startswith(_OF_PYSPARK)]
        jars += resolve(read_pins(_PINS), cache_folder() / "iceberg-rest-1.11.0").glob("*.jar")
        self._command = [str(find_java()), *_JAVA, "-cp", os.pathsep.join(map(str, jars)), "org.apache.iceberg.rest.RESTCatalogServer"]
        self.start()

    def start(self) -> None:
        """Start it, with the tables that it had; return once it answers."""
        settings = {
            "REST_PORT": str(self.port),
            "URI": f"jdbc:sqlite:{self._folder}/catalog.db",
            "WAREHOUSE": f"file://{self._folder}",
            "IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        environment = {**os.environ, **{f"CATALOG_{name}": value for name, value in settings.items()}}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)
        until_s = time.monotonic() + _START_S
        while not self._answers():
            assert self._process.poll() is None, f"the catalog has ended: {self._log.read_text()[-3000:]}"
            assert time.monotonic() < until_s, f"the catalog does not answer: {self._log.read_text()[-3000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut would end its process."""
        self._process.kill()
        self._process.wait()

    stop = kill

    def url(self, port: int | None = None) -> str:
        return f"http://127.0.0.1:{port or self.port}"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url()}/v1/config", timeout=5).close()
        except (urllib.error.URLError, OSError):
            return False
        return True
