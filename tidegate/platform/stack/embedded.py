"""
A real Apache Kafka (KRaft, one node) and a real Valkey on this machine, without containers: the embedded stack.

A stack is one folder with its data, its logs, and ``stack.json`` with ports and processes. The servers outlive the program that started
them.

Law: one folder has at most one Kafka and one Valkey running; a second start finds them, and no foreign process is ever stopped. Whoever
does not read the folder does not get into its Valkey, so that jobs of another folder cannot write into its journal by accident.

::

    FOLDER/stack.json     id, ports, processes, Valkey's password; readable by its user alone
    FOLDER/kafka/         server.properties, log4j2.properties, kafka.log, kafka.out, data/
    FOLDER/redis/         redis.conf, redis.log, redis.out, data/
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from ordering.errors import RefusedError
from tidegate.platform.stack.jars import StackError, find_java, hold_lock, kafka_jars
from tidegate.platform.stack.process import ServerProcess, is_free, is_listening, launch, wait_healthy
from tidegate.platform.stack.security import StackSecurity
from tidegate.platform.stack.servers import (
    format_kafka_storage,
    kafka_answers,
    kafka_command,
    make_cluster_id,
    redis_answers,
    valkey_binary,
    write_kafka_config,
    write_redis_config,
)

DEFAULT_DIRECTORY = Path(".tidegate/stack")
START_TIMEOUT_S = 90.0
STOP_GRACE_S = 30.0
# Below the range from which the system gives ports to outgoing connections: a client that keeps trying to reach a stopped
# server could otherwise get the server's own port, connect to itself, and keep the server from starting again.
_PORTS = range(20_000, 30_000)

_USUAL_PORTS = {"kafka": 9092, "redis": 6379}
_TITLES = {"kafka": "Kafka", "redis": "Valkey"}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ServiceStatus:
    """The state of one server; ``healthy`` means that it answered just now."""

    name: str
    address: str
    pid: int | None
    healthy: bool
    uptime_s: float | None


@dataclass(frozen=True)
class StackStatus:
    """The state of a stack."""

    directory: str
    services: tuple[ServiceStatus, ...]
    id: str = ""

    @property
    def healthy(self) -> bool:
        return all(service.healthy for service in self.services)

    def as_dict(self) -> dict[str, object]:
        return {
            "directory": self.directory,
            "id": self.id,
            "healthy": self.healthy,
            "services": [asdict(service) for service in self.services],
        }


class EmbeddedStack:
    """
    The Kafka and the Valkey of one folder.

    As a context manager it starts the servers that do not run; at the end it stops the stack if it had to start any of them.

    Args:
        directory: The stack's folder; created if missing.
        kafka_port, redis_port: Loopback ports; None: a free one, at the next start the same again if possible.
        usual_ports: Whether to try first the ports that clients expect, 9092 and 6379.
        heap: Largest heap of Kafka's JVM, as Java writes it, e.g. ``512m``.
        security: Users and certificates; None: every process on this machine has access.
        with_password: Whether a Valkey that is started asks for a password, made for this folder; without *security* only.
    """

    def __init__(
        self,
        directory: Path,
        kafka_port: int | None = None,
        redis_port: int | None = None,
        heap: str = "1g",
        security: StackSecurity | None = None,
        *,
        usual_ports: bool = False,
        with_password: bool = False,
    ) -> None:
        self._with_password = with_password
        self._usual_ports = _USUAL_PORTS if usual_ports else {}
        self.directory = directory.absolute()
        self._wanted_ports = {"kafka": kafka_port, "redis": redis_port}
        self._heap, self._security = heap, security
        self._stop_at_exit = False

    @classmethod
    def find(cls, directory: Path = DEFAULT_DIRECTORY) -> EmbeddedStack | None:
        """Return the stack that runs in *directory*, or None; this looks at processes only and does not wait for the servers' answers."""
        stack = cls(directory)
        names = ("kafka", "redis")
        # One running server is enough: if the other has died, its default port may belong to a foreign server.
        running = any(stack._is_running(name) for name in names) and all(stack._recorded_port(name) for name in names)
        return stack if running else None

    @property
    def bootstrap(self) -> str:
        """Kafka's address, for ``bootstrap.servers``."""
        return f"127.0.0.1:{self._port('kafka')}"

    @property
    def tls_bootstrap(self) -> str:
        """Kafka's address for client certificates; only with security."""
        return f"127.0.0.1:{self._port('kafka_tls')}"

    @property
    def redis_url(self) -> str:
        """Valkey's address with its password, for Redis clients. Never show it unless it is asked for."""
        return f"redis://{f':{self.redis_password}@' if self.redis_password else ''}127.0.0.1:{self._port('redis')}/0"

    @property
    def redis_address(self) -> str:
        """Valkey's address as it may be shown."""
        return f"redis://127.0.0.1:{self._port('redis')}/0"

    def has_address(self, url: object) -> bool:
        """Return whether *url* leads to this stack's Valkey, without a password."""
        pattern = rf"redis://(localhost|127\.0\.0\.1):{self._port('redis')}(/\d*)?"
        return isinstance(url, str) and re.fullmatch(pattern, url) is not None

    @property
    def redis_password(self) -> str:
        """The password of the Valkey that runs, or ran last; empty if it asks for none."""
        return str(self._read().get("redis_password") or "")

    @property
    def id(self) -> str:
        """The identity of this stack, which is its Kafka's cluster id; empty if it was made by an earlier version."""
        return str(self._read().get("id") or "")

    @property
    def kafka_pid(self) -> int | None:
        return self._pid("kafka")

    @property
    def redis_pid(self) -> int | None:
        return self._pid("redis")

    def start(self, progress: Progress = lambda step: None) -> None:
        """
        Start the servers that do not run, and return once both answer; *progress* gets each step in a few words. Raises StackError: No
        Java, a wrong checksum, a taken port, or a server that does not start; RefusedError: a server already runs on another port than the
        one asked for.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_lock(self.directory / "lock"):
            missing = [name for name in ("kafka", "redis") if not self._is_running(name)]
            self._check_ports_kept({"kafka", "redis"} - set(missing))
            try:
                if "kafka" in missing:
                    self._launch_kafka(progress, keep_port=False)
                if "redis" in missing:
                    self._launch_redis(progress, keep_port=False)
                self._wait_healthy(progress)
            except BaseException:
                # A failed start leaves no server that was not there before.
                for name in missing:
                    self._stop(name, grace_s=0)
                raise
            self._stop_at_exit = bool(missing)

    def stop(self, wipe: bool = False) -> None:
        """Stop both servers, if they run; with *wipe* delete their data, logs and configuration too."""
        if not self.directory.is_dir():
            return
        with hold_lock(self.directory / "lock"):
            self._stop("kafka", STOP_GRACE_S)
            self._stop("redis", STOP_GRACE_S)
            if wipe:
                self._wipe()

    def status(self) -> StackStatus:
        """Ask both servers whether they answer."""
        return StackStatus(str(self.directory), tuple(self._service_status(name) for name in ("kafka", "redis")), self.id)

    def stop_kafka(self, grace_s: float = STOP_GRACE_S) -> None:
        """Stop Kafka alone; *grace_s* 0 kills it, as a power cut would. :meth:`start_kafka` starts it again on the same port."""
        self._stop("kafka", grace_s)

    def start_kafka(self) -> None:
        """Start Kafka alone, on its former port, and wait until it answers."""
        if not self._is_running("kafka"):
            self._launch_kafka(lambda step: None, keep_port=True)
        self._wait_healthy(lambda step: None, ("kafka",))

    def stop_redis(self, grace_s: float = STOP_GRACE_S) -> None:
        """Stop Valkey alone; *grace_s* 0 kills it, as a power cut would. :meth:`start_redis` starts it again on the same port."""
        self._stop("redis", grace_s)

    def start_redis(self) -> None:
        """Start Valkey alone, on its former port, and wait until it answers."""
        if not self._is_running("redis"):
            self._launch_redis(lambda step: None, keep_port=True)
        self._wait_healthy(lambda step: None, ("redis",))

    def __enter__(self) -> EmbeddedStack:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._stop_at_exit:
            self.stop()

    # ----- starting and stopping one server

    def _launch_kafka(self, progress: Progress, *, keep_port: bool) -> None:
        java = find_java()
        progress("Kafka: checking its jars (the first time they are fetched, 44 MB)")
        jars = kafka_jars()
        port = self._choose_port("kafka", keep_port)
        folder = self.directory / "kafka"
        tls_port = self._choose_port("kafka_tls", keep_port) if self._security is not None else 0
        properties = write_kafka_config(folder, port, tls_port, free_port({port, tls_port}), self._security)
        if not self.id and not (folder / "data" / "meta.properties").exists():
            self._update({"id": make_cluster_id()})
        format_kafka_storage(java, jars, properties, self._security, self.id or make_cluster_id())
        progress(f"Kafka: starting on port {port}")
        server = launch(kafka_command(java, jars, properties, self._heap), properties, folder / "kafka.out")
        self._record("kafka", server)

    def _launch_redis(self, progress: Progress, *, keep_port: bool) -> None:
        port = self._choose_port("redis", keep_port)
        folder = self.directory / "redis"
        # A password stays that of the folder: its programs may have been given it.
        password = self.redis_password or (secrets.token_urlsafe(24) if self._with_password and self._security is None else "")
        self._update({"redis_password": password})
        config = write_redis_config(folder, port, self._security, password)
        progress(f"Valkey: starting on port {port}")
        self._record("redis", launch([valkey_binary(), config], config, folder / "redis.out"))

    def _wait_healthy(self, progress: Progress, names: tuple[str, ...] = ("redis", "kafka")) -> None:
        for name in names:
            server = self._server(name)
            assert server is not None, f"{name} was launched before it is waited for"
            logs = [self.directory / name / f"{name}{ending}" for ending in (".log", ".out")]
            wait_healthy(_TITLES[name], server, functools.partial(self._is_healthy, name), logs, START_TIMEOUT_S)
            progress(f"{_TITLES[name]}: ready at {self._address(name)}")

    def _stop(self, name: str, grace_s: float) -> None:
        server = self._server(name)
        if server is not None:
            server.stop(grace_s)
            self._update({name: None})

    def _wipe(self) -> None:
        for name in ("kafka", "redis"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name in ("stack.json", "lock"):
            (self.directory / name).unlink(missing_ok=True)
        # The folder may hold files of others, so it is removed only if empty.
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    # ----- ports

    def _choose_port(self, name: str, keep_port: bool) -> int:
        wanted, remembered = self._wanted_ports.get(name), self._recorded_port(name)
        fixed = wanted or (remembered if keep_port else None)
        likely = [port for port in (remembered, self._usual_ports.get(name)) if port and is_free(port) and not is_listening(port)]
        port = fixed or (likely[0] if likely else free_port())
        if not is_free(port):
            what = f"port {port} for {name} is taken by another program"
            where = f"127.0.0.1:{port}"
            fix = "stop that program, give another port, or give none and a free one is found"
            raise StackError(what, code="TG-STACK-PORT", where=where, fix=fix, example=f"tidegate up --{name}-port {free_port()}")
        self._update({f"{name}_port": port})
        return port

    def _check_ports_kept(self, running: set[str]) -> None:
        for name in sorted(running):
            wanted, port = self._wanted_ports[name], self._port(name)
            if wanted not in (None, port):
                what = f"{name} of this stack runs on port {port} already, not on {wanted}"
                fix = "stop it first, or use another folder"
                raise RefusedError(what, code="TG-STACK-MOVE", where=str(self.directory), fix=fix, example="tidegate down")

    # ----- stack.json

    def _read(self) -> dict[str, object]:
        try:
            state = json.loads((self.directory / "stack.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return state if isinstance(state, dict) else {}

    def _update(self, changes: dict[str, object]) -> None:
        # Replaced in one step: a reader sees the old state or the new one, also after a power cut.
        fresh = self.directory / f"stack.json.{os.getpid()}"
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(self._read() | changes, indent=2, sort_keys=True) + "\n")
        fresh.replace(self.directory / "stack.json")

    def _record(self, name: str, server: ServerProcess) -> None:
        self._update({name: asdict(server)})

    def _server(self, name: str) -> ServerProcess | None:
        facts = self._read().get(name)
        return ServerProcess(**facts) if isinstance(facts, dict) else None

    def _is_running(self, name: str) -> bool:
        return self._pid(name) is not None

    def _pid(self, name: str) -> int | None:
        server = self._server(name)
        return server.pid if server and server.process() else None

    def _recorded_port(self, name: str) -> int | None:
        port = self._read().get(f"{name}_port")
        return port if isinstance(port, int) else None

    def _port(self, name: str) -> int:
        port = self._recorded_port(name) or self._wanted_ports.get(name)
        if port is None:
            what = "this stack was never started, so it has no address"
            raise StackError(what, code="TG-STACK-DOWN", where=str(self.directory), fix="start it", example="tidegate up")
        return port

    # ----- health

    def _address(self, name: str) -> str:
        return self.bootstrap if name == "kafka" else self.redis_address

    def _is_healthy(self, name: str) -> bool:
        # A plain connection is tried first: a client of Kafka or Redis would still wait to retry when the server is up.
        if not is_listening(self._port(name)):
            return False
        if name == "kafka":
            return kafka_answers(self.bootstrap, self._security)
        return redis_answers(self.redis_url)

    def _service_status(self, name: str) -> ServiceStatus:
        server = self._server(name)
        pid = self._pid(name)
        if server is None or pid is None:
            address = self._address(name) if self._recorded_port(name) else ""
            return ServiceStatus(name, address, None, False, None)
        return ServiceStatus(name, self._address(name), pid, self._is_healthy(name), round(time.time() - server.started_s, 1))


def free_port(other_than: Collection[int] = ()) -> int:
    """Return a free loopback port that is none of *other_than*; raise StackError if all are taken."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in other_than and is_free(port):
            return port
    raise StackError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free", code="TG-STACK-PORT", fix="give ports of your own")
