"""
A real HDFS for tests: a NameNode and a DataNode of Hadoop, each a process of its own that may be killed and started again.

Their jar comes from Maven Central by its checksum, as those of the embedded Kafka do; what it stands on comes with PySpark.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from tidegate.platform.stack.embedded import free_port
from tidegate.platform.stack.jars import Pin, cache_folder, find_java, resolve

USER = "hdfs"
_VERSION = "3.5.0"
_PINS = [
    Pin(
        "org.apache.hadoop",
        "hadoop-client-minicluster",
        _VERSION,
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
    )
]
_OF_PYSPARK = (f"hadoop-client-api-{_VERSION}", f"hadoop-client-runtime-{_VERSION}", "jcl-over-slf4j", "log4j", "slf4j-api")
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CLASSES = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
}
_START_S = 120.0


class HdfsServer:
    """An HDFS in *folder*; the superuser is ``hdfs``, and ``/`` is theirs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        settings = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{free_port()}",
            "dfs.namenode.name.dir": f"file://{folder}/name",
            "dfs.datanode.data.dir": f"file://{folder}/blocks",
            "dfs.replication": "1",
            "dfs.namenode.http-address": f"127.0.0.1:{self.port}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
            **{f"dfs.datanode.{part}": "127.0.0.1:0" for part in ("address", "http.address", "ipc.address")},
        }
        properties = "".join(f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items())
        for name in ("core-site", "hdfs-site"):
            (folder / f"{name}.xml").write_text(f"<configuration>{properties}</configuration>")
        jars = [path for path in (Path(pyspark.__file__).parent / "jars").iterdir() if path.name.startswith(_OF_PYSPARK)]
        jars += resolve(_PINS, cache_folder() / f"hadoop-minicluster-{_VERSION}").glob("*.jar")
        self._command = [str(find_java()), *_JAVA, "-cp", os.pathsep.join(map(str, [folder, *jars]))]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        with self._log.open("ab") as log:
            subprocess.run([*self._command, _CLASSES["namenode"], "-format"], check=True, stdout=log, stderr=log, env=self._environment)
        self.start("namenode")
        self.start("datanode")
        self.wait()

    def start(self, name: str) -> None:
        """Start ``namenode`` or ``datanode``, with what it had."""
        with self._log.open("ab") as log:
            self._processes[name] = subprocess.Popen([*self._command, _CLASSES[name]], stdout=log, stderr=log, env=self._environment)

    def wait(self) -> None:
        """Return once a file can be written."""
        until_s = time.monotonic() + _START_S
        while not self._takes_files():
            assert all(process.poll() is None for process in self._processes.values()), self._log.read_text()[-3000:]
            assert time.monotonic() < until_s, f"HDFS takes no files: {self._log.read_text()[-3000:]}"
            time.sleep(0.2)

    def kill(self, name: str) -> None:
        """End one of the two as a power cut would end its process."""
        self._processes[name].kill()
        self._processes[name].wait()

    def close(self) -> None:
        for name in self._processes:
            self.kill(name)

    def url(self, path: str, port: int | None = None) -> str:
        return f"webhdfs://127.0.0.1:{port or self.port}/{path}"

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HADOOP_USER_NAME": USER}

    def _takes_files(self) -> bool:
        asked = f"http://127.0.0.1:{self.port}/webhdfs/v1/probe?op=CREATE&noredirect=true&overwrite=true&user.name={USER}"
        try:
            with urllib.request.urlopen(urllib.request.Request(asked, method="PUT"), timeout=5) as answer:
                return "Location" in json.load(answer)
        except (urllib.error.URLError, OSError):
            return False
