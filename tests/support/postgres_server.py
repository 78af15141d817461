"""A real PostgreSQL for tests: Debian's package, started on a free loopback port, with its data in a folder of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psycopg

from tidegate.platform.stack.embedded import free_port

_START_S = 30.0


class PostgresServer:
    """
    A PostgreSQL of this test run, superuser ``postgres``; it may be killed and started again with its data.

    Args:
        files: Copied into its folder of data, by the names that they get there.
    """

    def __init__(self, *options: str, files: Mapping[str, Path] | None = None) -> None:
        self._options, self.port = options, free_port()
        self._programs, self._user = _find_programs(), _user()
        self._folder = _make_folder()
        self.data = self._folder / "data"
        subprocess.run(["cp", "--archive", str(_empty_cluster()), str(self.data)], check=True)
        for name, file in (files or {}).items():
            shutil.copyfile(file, self.data / name)
            # It takes a private key only if nobody else may read it.
            (self.data / name).chmod(0o600)
            if self._user:
                shutil.chown(self.data / name, self._user)
        self.start()

    def start(self) -> None:
        """Start the server; return once it answers."""
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_wal_size": "256MB"}
        command = [str(self._programs / "postgres"), "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command += [part for option in self._options for part in ("-c", option)]
        log = (self._folder / "postgres.log").open("ab")
        self.process = subprocess.Popen(command, user=self._user, cwd="/", stdout=log, stderr=log, env=_environment())
        log.close()
        until_s = time.monotonic() + _START_S
        while not postgres_answers(self.url()):
            assert self.process.poll() is None, f"PostgreSQL has ended: {(self._folder / 'postgres.log').read_text()[-2000:]}"
            assert time.monotonic() < until_s, "PostgreSQL does not answer"
            time.sleep(0.1)

    def kill(self) -> None:
        """End the server as a power cut would end its processes; what is committed is on disk."""
        # The postmaster's children end by themselves when it is gone.
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._wait_for_children()

    def stop(self) -> None:
        """End the server, and delete its data; clients are cut off."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(_START_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def make_database(self, name: str) -> str:
        """Make an empty database; return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def _wait_for_children(self) -> None:
        # The next start is refused as long as one of them holds the shared memory.
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            found = subprocess.run(["pgrep", "-f", str(self.data)], capture_output=True, check=False)
            if not found.stdout:
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                return
            time.sleep(0.05)


def postgres_answers(url: str) -> bool:
    """Tell whether a PostgreSQL takes connections there."""
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _user() -> str | None:
    """PostgreSQL does not run as root."""
    return "postgres" if os.geteuid() == 0 else None


def _make_folder() -> Path:
    """Its own user may not look into the folders of pytest, nor into a private TMPDIR."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-", dir="/var/tmp" if _user() else None))
    if user := _user():
        shutil.chown(folder, user)
    return folder


@cache
def _empty_cluster() -> Path:
    """Return the data of a server that never ran: making them takes a CPU second, copying them a tenth of it."""
    folder = _make_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    initdb = [str(_find_programs() / "initdb"), "--pgdata", str(folder / "data"), "--auth", "trust", "--username", "postgres"]
    options = ["--encoding", "UTF8", "--no-locale", "--no-sync"]
    subprocess.run([*initdb, *options], user=_user(), cwd="/", check=True, stdout=subprocess.DEVNULL, env=_environment())
    return folder / "data"


def _find_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    place = Path(shutil.which("postgres") or "/nowhere").resolve() if not found else found[-1]
    assert place.exists(), "there is no PostgreSQL server: apt-get install postgresql"
    return place.parent


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
