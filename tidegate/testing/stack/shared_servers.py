"""
Servers that all processes of a test run share, as pytest-xdist has several.

Law: all processes use one Kafka and one Redis. The first that needs them starts them and stops them once all others have ended, by whatever
way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from tidegate.testing.stack.real_stack import RealStack

_NAP_S = 0.2


@contextlib.contextmanager
def shared_servers(folder: Path, start: Callable[[Path], AbstractContextManager[RealStack]]) -> Iterator[RealStack]:
    """Give the servers whose addresses *folder* tells; start them if it tells none."""
    addresses = folder / "stack.json"
    with contextlib.ExitStack() as opened:
        users = opened.enter_context((folder / "users.lock").open("w"))
        with _locked(folder / "start.lock"):
            # The system gives the lock back when this process ends, even by a kill.
            fcntl.flock(users, fcntl.LOCK_SH)
            if addresses.exists():
                stack = RealStack(**json.loads(addresses.read_text()))
            else:
                stack = opened.enter_context(start(folder / "servers"))
                addresses.write_text(json.dumps(stack.__dict__))
                opened.callback(_wait_for_users, users, folder)
        yield stack


def _wait_for_users(users: IO[str], folder: Path) -> None:
    """Return once no other process uses the servers; whoever comes then starts new ones."""
    fcntl.flock(users, fcntl.LOCK_UN)  # two that wait for each other's share would wait for ever
    while True:
        with _locked(folder / "start.lock"), contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / "stack.json").unlink()
            return
        time.sleep(_NAP_S)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
