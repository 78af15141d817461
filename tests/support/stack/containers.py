"""
A PostgreSQL in a container, on a loopback port chosen before it starts and kept over a restart. ``TIDEGATE_POSTGRES_IMAGE`` names another
image than the default one. Kafka's and Redis' containers are those of the kit, ``tidegate/testing/stack/containers.py``.
"""

from __future__ import annotations

from support.postgres_server import postgres_answers
from support.stack.servers import POSTGRES_IMAGE
from testcontainers.core.container import DockerContainer

from tidegate.testing.stack.containers import fixed_port, halt, resume, wait_for


class PostgresContainer:
    """A PostgreSQL with the face of :class:`support.postgres_server.PostgresServer`, and its data as long as the container is there."""

    def __init__(self) -> None:
        self.port = fixed_port()
        self._container = DockerContainer(POSTGRES_IMAGE)
        self._container.ports["5432/tcp"] = ("127.0.0.1", self.port)
        # To the image of PostgreSQL's own project; ours lets everybody in.
        self._container.with_env("POSTGRES_HOST_AUTH_METHOD", "trust")
        self._container.start()
        self._wait()

    def start(self) -> None:
        """Bring it back at the same address."""
        resume(self._container)
        self._wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        halt(self._container, 0)

    def stop(self) -> None:
        """Remove it with its data."""
        self._container.stop(force=True, delete_volume=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _wait(self) -> None:
        wait_for(lambda: postgres_answers(self.url()), "PostgreSQL", self._container)
