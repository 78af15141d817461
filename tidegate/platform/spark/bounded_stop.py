"""
A stop whose time is bounded: a JVM that does not answer is ended, and what waits for it goes on.

Law: the stages of a process end within ``STOP_WITHIN_S`` seconds after they were asked to, and some more for each further stage, whatever
JVM and workers do; Spark itself ends within as many again. A JVM that is ended cuts a batch off, as ``kill -9`` would: the next start runs
it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from tidegate.platform.observe.logs import get_logger
from tidegate.platform.spark.privates import kill_jvm

# A batch that is cut off takes some seconds to end: Spark kills its tasks after two. Stages end one after another.
STOP_WITHIN_S, _FURTHER_STAGE_S = 15.0, 5.0
_LOOK_EVERY_S = 0.2


class BoundedStop:
    """
    A block that stops *stages* in bounded time once *is_asked*, or once :meth:`begin` was called: otherwise the JVM is ended by *end*, so
    that the block's calls to it fail.
    """

    def __init__(
        self, is_asked: Callable[[], bool], stages: int = 1, end: Callable[[], None] = kill_jvm, within_s: float = STOP_WITHIN_S
    ) -> None:
        self._is_asked, self._within_s, self._end = is_asked, within_s + _FURTHER_STAGE_S * max(stages - 1, 0), end
        self._begun, self._over = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Count the time from now on, if nobody has asked before."""
        self._begun.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="bounded stop", daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._begun.is_set() and not self._is_asked():
            if self._over.wait(_LOOK_EVERY_S):
                return
        if not self._over.wait(self._within_s):
            get_logger("spark").warning(
                "Spark does not stop: its JVM is ended, and the next start runs the batch again", after_s=self._within_s
            )
            self._end()
