"""
Which servers a test session uses: containers if a Docker engine answers and has or gets the images, else the embedded stack.

``TIDEGATE_TEST_STACK=containers`` or ``embedded`` forces one of them. Law: containers that are forced and cannot be had are an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from ordering.errors import SettingError

VARIABLE = "TIDEGATE_TEST_STACK"
_ENGINE_WAIT_S = 5
KAFKA_IMAGE = os.environ.get("TIDEGATE_KAFKA_IMAGE", "apache/kafka:4.3.1")
REDIS_IMAGE = os.environ.get("TIDEGATE_REDIS_IMAGE", "redis:8")


def find_obstacle(*images: str) -> str:
    """Say what stands against containers of these images; empty if nothing does. SettingError: they are forced, and something does."""
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "containers", "embedded"):
        raise SettingError(f"{VARIABLE}={wish!r}: write containers or embedded", code="TG-SETTING-VALUE", where=VARIABLE)
    if wish == "embedded":
        return f"{VARIABLE}=embedded"
    obstacle = _obstacle(images)
    if wish and obstacle:
        what, fix = f"{VARIABLE}=containers, but {obstacle}", "start the engine, name other images, or unset the variable"
        raise SettingError(what, code="TG-SETTING-VALUE", where=VARIABLE, fix=fix)
    return obstacle


def _obstacle(images: Iterable[str]) -> str:
    if find_spec("testcontainers") is None:
        return "the package testcontainers is missing"
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=_ENGINE_WAIT_S)
        client.ping()
    except DockerException:
        return "no Docker engine answers"
    client.close()
    client = docker.from_env()
    try:
        missing = [image for image in images if not _has(client, image)]
    finally:
        client.close()
    return f"the engine cannot get {' nor '.join(missing)}" if missing else ""


def _has(client: Any, image: str) -> bool:
    """Tell whether the engine has an image, or can pull it."""
    from docker.errors import DockerException, ImageNotFound

    try:
        client.images.get(image)
    except ImageNotFound:
        try:
            client.images.pull(image)
        except DockerException:
            return False
    return True
