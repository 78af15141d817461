"""
A standalone Spark cluster on loopback: a master and workers of one core each, from the jars that PySpark carries.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

_START_S = 90.0
_ADDRESS = re.compile(r"spark://127\.0\.0\.1:\d+")
WORKERS = 2


@contextlib.contextmanager
def cluster(folder: Path, project: Path, workers: int = WORKERS) -> Iterator[str]:
    """Start a cluster whose workers find *project*'s packages; give its address, and stop it in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        master = folder / "master.log"
        servers.append(_start("master.Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], master, folder, project))
        address = _told(master, _ADDRESS, servers[0])
        for number in range(workers):
            log = folder / f"worker-{number}.log"
            flags = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
            servers.append(_start("worker.Worker", [*flags, address], log, folder, project))
            _told(log, re.compile("Successfully registered with master"), servers[-1])
        yield address
    finally:
        for server in reversed(servers):
            server.terminate()
        for server in servers:
            server.wait(30)


def _start(name: str, flags: list[str], log: Path, folder: Path, project: Path) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_CONF_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(project),
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *flags]
    with log.open("wb") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=environment, start_new_session=True)


def _told(log: Path, wanted: re.Pattern[str], server: subprocess.Popen[bytes]) -> str:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and server.poll() is None:
        if found := wanted.search(log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"Spark's {log.stem} did not start: {log.read_text(errors='replace')[-2000:]}")
