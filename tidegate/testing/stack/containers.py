"""
Kafka and Redis in containers, each on a loopback port chosen before it starts and kept over a restart.

A script of Tidegate is copied into the Kafka container and started there, so ``apache/kafka`` serves, and any image with Java and Kafka's
jars in ``/opt/kafka/libs``. ``TIDEGATE_KAFKA_IMAGE`` and ``TIDEGATE_REDIS_IMAGE`` name other images than the default ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from docker.errors import APIError
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tidegate.platform import stack
from tidegate.platform.stack.process import is_free
from tidegate.platform.stack.servers import kafka_answers, redis_answers
from tidegate.testing.stack.stack_choice import KAFKA_IMAGE, REDIS_IMAGE

START_TIMEOUT_S = 90.0
_PORT_S = 30.0
_SCRIPT = Path(stack.__path__[0]) / "kafka.sh"

# Whoever starts containers removes them; a reaper container would be one more image to fetch.
testcontainers_config.ryuk_disabled = True


class KafkaContainer(DockerContainer):
    """A broker at ``bootstrap``."""

    def __init__(self, image: str = KAFKA_IMAGE) -> None:
        super().__init__(image)
        self._port = fixed_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.ports["9092/tcp"] = ("127.0.0.1", self._port)  # type: ignore[assignment]  # with_bind_ports would open it to the network
        self.with_env("ADVERTISED", self.bootstrap)
        # Letters of 70 MB and transactions of other tests come at the same time.
        self.with_env("HEAP", "1g")
        self.with_copy_into_container(_SCRIPT, "/start-kafka.sh")
        self.with_kwargs(entrypoint=["sh", "/start-kafka.sh"])

    def answers(self) -> bool:
        """Tell whether the broker serves metadata."""
        return kafka_answers(self.bootstrap)


class RedisContainer(DockerContainer):
    """A Redis at ``url``, with every write on disk before it is acknowledged."""

    def __init__(self, image: str = REDIS_IMAGE) -> None:
        super().__init__(image)
        self._port = fixed_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.ports["6379/tcp"] = ("127.0.0.1", self._port)  # type: ignore[assignment]
        self.with_command("redis-server --bind 0.0.0.0 --protected-mode no --appendonly yes --appendfsync always --save '' --dir /tmp")

    def answers(self) -> bool:
        """Tell whether the server has loaded its data and answers."""
        return redis_answers(self.url)

    def halt(self, grace_s: float = 30.0) -> None:
        """Stop the server; with *grace_s* 0 as a power cut would."""
        halt(self, grace_s)

    def resume(self) -> None:
        """Bring the server back at the same address."""
        resume(self)
        wait_for(self.answers, "Redis", self)


class ContainerStack:
    """Both; the face is that of the embedded stack: addresses, and switches for the faults that tests make."""

    def __init__(self) -> None:
        self._kafka, self._redis = KafkaContainer(), RedisContainer()
        self.bootstrap, self.redis_url = self._kafka.bootstrap, self._redis.url

    def start(self) -> None:
        """Start both containers and return once both servers answer."""
        self._redis.start()
        self._kafka.start()
        wait_for(self._redis.answers, "Redis", self._redis)
        wait_for(self._kafka.answers, "Kafka", self._kafka)

    def stop(self) -> None:
        """Remove both containers with their data."""
        for container in (self._kafka, self._redis):
            container.stop(force=True, delete_volume=True)

    def stop_kafka(self, grace_s: float = 30.0) -> None:
        """Stop the broker; with *grace_s* 0 as a power cut would."""
        halt(self._kafka, grace_s)

    def start_kafka(self) -> None:
        """Bring the broker back at the same address."""
        resume(self._kafka)
        wait_for(self._kafka.answers, "Kafka", self._kafka)

    def stop_redis(self, grace_s: float = 30.0) -> None:
        """Stop Redis; with *grace_s* 0 as a power cut would."""
        self._redis.halt(grace_s)

    def start_redis(self) -> None:
        """Bring Redis back at the same address."""
        self._redis.resume()


def resume(container: DockerContainer) -> None:
    """Start a stopped container; the engine may still hold the port that it had."""
    deadline_s = time.monotonic() + _PORT_S
    while True:
        try:
            container.get_wrapped_container().start()
            return
        except APIError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.5)


def halt(container: DockerContainer, grace_s: float) -> None:
    """Stop a container; with *grace_s* 0 as a power cut would."""
    wrapped = container.get_wrapped_container()
    if grace_s > 0:
        wrapped.stop(timeout=int(grace_s))
    else:
        wrapped.kill()
        wrapped.wait()


def wait_for(answers: Callable[[], bool], name: str, container: DockerContainer) -> None:
    """Return once *answers* says yes; fail with the container's last words if it does not in time."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not answers():
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status == "exited" or time.monotonic() > deadline_s:
            raise AssertionError(f"{name} did not come up ({wrapped.status}): {wrapped.logs(tail=20).decode(errors='replace')}")
        time.sleep(0.1)


def fixed_port() -> int:
    """Return a free port below those given to outgoing connections, so that a stopped server's port stays free for it."""
    return next(port for port in _candidates if is_free(port))


_candidates = iter(random.sample(range(17_000, 20_000), 3_000))
